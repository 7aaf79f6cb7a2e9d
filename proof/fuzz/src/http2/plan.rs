//! Plan of an exchange, decoded from an input.

use semel_testkit::http2::{CODES, data, go_away, headers, reset};

/// Separator between the steps of the request and of the response.
const SEPARATOR: u8 = 255;

/// An exchange: the client's request and the upstream's response.
#[derive(Debug)]
pub(super) struct Plan {
    /// True for a command, false for a request that is passed through.
    pub(super) is_command: bool,
    /// True if each frame is sent alone; otherwise all of them at once.
    pub(super) is_slow: bool,
    pub(super) request: Script,
    pub(super) response: Script,
}

/// One message, frame by frame.
#[derive(Debug, Default)]
pub(super) struct Script {
    steps: Vec<Step>,
    announced: Option<usize>,
    /// Bytes that its frames carry.
    pub(super) body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Only the head, which ends the message.
    HeadOnly,
    Data {
        length: usize,
        ends: bool,
    },
    Trailers,
    Reset(u32),
    GoAway {
        includes_stream: bool,
        code: u32,
    },
    Close,
}

impl Step {
    fn of(byte: u8) -> Step {
        let number = usize::from(byte >> 3);
        let code = u32::from(byte >> 3) % CODES.end;
        match byte % 8 {
            0..=2 => Step::Data { length: number, ends: false },
            3 => Step::Data { length: number, ends: true },
            4 => Step::Trailers,
            5 => Step::Reset(code),
            6 => Step::GoAway { includes_stream: byte >= 128, code },
            _ => Step::Close,
        }
    }

    fn ends(self) -> bool {
        matches!(self, Step::HeadOnly | Step::Data { ends: true, .. } | Step::Trailers)
    }

    fn cuts(self) -> bool {
        matches!(self, Step::Reset(_) | Step::GoAway { .. } | Step::Close)
    }
}

impl Plan {
    pub(super) fn of(input: &[u8]) -> Plan {
        let (first, steps) = input.split_first().unwrap_or((&0, &[]));
        let mut halves = steps.splitn(2, |byte| *byte == SEPARATOR);
        let (request, response) = (halves.next().unwrap_or_default(), halves.next());
        let response = response.map_or(Script::plain(), |steps| Script::of(steps, first >> 2 & 3));
        Plan {
            is_command: first & 16 == 0,
            is_slow: first & 32 != 0,
            request: Script::of(request, first & 3),
            response,
        }
    }
}

impl Script {
    /// Returns a short complete message.
    fn plain() -> Script {
        Script { steps: vec![Step::Data { length: 2, ends: true }], announced: None, body: b"xx".to_vec() }
    }

    /// Reads the message of these steps: up to its end and one cut after that, or up to a cut. A message that just
    /// stops is reset.
    fn of(bytes: &[u8], lengths: u8) -> Script {
        let mut script = Script::default();
        for step in bytes.iter().map(|byte| Step::of(*byte)) {
            let is_over = script.steps.last().is_some_and(|last| last.ends());
            if is_over && !step.cuts() {
                continue;
            }
            if let Step::Data { length, .. } = step {
                script.body.resize(script.body.len() + length, b'x');
            }
            script.steps.push(step);
            if step.cuts() {
                break;
            }
        }
        match script.steps.last() {
            None => script.steps.push(Step::HeadOnly),
            Some(last) if last.ends() || last.cuts() => {}
            Some(_) => script.steps.push(Step::Reset(0)),
        }
        script.announced = match lengths {
            0 => None,
            1 => Some(script.body.len()),
            2 => Some(script.body.len() + 1),
            _ => script.body.len().checked_sub(1),
        };
        script
    }

    /// Returns true if its sender ended it, with as many bytes as announced.
    pub(super) fn is_whole(&self) -> bool {
        let is_ended = self.steps.iter().any(|step| step.ends());
        is_ended && self.announced.is_none_or(|length| length == self.body.len())
    }

    /// Returns true if nothing follows its end.
    pub(super) fn is_left_alone(&self) -> bool {
        !self.steps.iter().any(|step| step.cuts())
    }

    /// Returns true if its sender ends the connection.
    pub(super) fn closes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::GoAway { .. } | Step::Close))
    }

    /// Returns the frames of the message on this stream, with these fields in its head.
    pub(super) fn frames(&self, stream: u32, fields: &[(&str, &str)]) -> Vec<Vec<u8>> {
        let announced = self.announced.map(|length| length.to_string());
        let mut fields = fields.to_vec();
        fields.extend(announced.as_deref().map(|length| ("content-length", length)));
        let head = headers(stream, &fields, self.steps.first() == Some(&Step::HeadOnly));
        let steps = self.steps.iter().filter_map(|step| match *step {
            Step::HeadOnly | Step::Close => None,
            Step::Data { length, ends } => Some(data(stream, &vec![b'x'; length], ends)),
            Step::Trailers => Some(headers(stream, &[("x-sum", "7")], true)),
            Step::Reset(code) => Some(reset(stream, code)),
            Step::GoAway { includes_stream, code } => {
                Some(go_away(if includes_stream { stream } else { 0 }, code))
            }
        });
        std::iter::once(head).chain(steps).collect()
    }
}
