//! A draft of a request: valid, until a production of the grammar changes it.

use crate::case::{After, Ask, Case, Client, Ending, Expectation, Group, RawFrame, Wire};
use crate::frames;
use crate::script::Script;
use semel_testkit::Chance;

/// Host of all requests.
pub(crate) const HOST: &str = "lab";

/// API keys, in the order of [`Client::ALL`].
#[derive(Clone, Debug)]
pub(crate) struct Credentials(pub(crate) Vec<String>);

impl Credentials {
    /// Returns the API key of a client that has one.
    pub(crate) fn of(&self, client: Client) -> Option<&str> {
        let at = Client::ALL.iter().position(|other| *other == client)?;
        self.0.get(at).map(String::as_str)
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// `GET /items/7`, open to every client.
    Read,
    /// `GET /search/7`, which may have a body.
    Search,
    /// `PUT /files/7`, which is passed through.
    Store,
    /// `POST /payments`, a command with a rule.
    Create,
    /// `POST /notes/7`, a command without a rule.
    Note,
    /// `PUT /payments/7`, a command by its rule alone.
    Replace,
    /// `DELETE /orders/7`, a command by its rule alone.
    Remove,
}

impl Sort {
    pub(crate) const COMMANDS: [Sort; 4] = [Sort::Create, Sort::Note, Sort::Replace, Sort::Remove];
    pub(crate) const WITH_BODY: [Sort; 4] = [Sort::Store, Sort::Create, Sort::Note, Sort::Replace];
    pub(crate) const PLAIN: [Sort; 6] =
        [Sort::Read, Sort::Store, Sort::Create, Sort::Note, Sort::Replace, Sort::Remove];

    pub(crate) fn is_command(self) -> bool {
        Sort::COMMANDS.contains(&self)
    }

    fn method(self) -> &'static str {
        match self {
            Sort::Read | Sort::Search => "GET",
            Sort::Store | Sort::Replace => "PUT",
            Sort::Create | Sort::Note => "POST",
            Sort::Remove => "DELETE",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Sort::Read => "/items/7",
            Sort::Search => "/search/7",
            Sort::Store => "/files/7",
            Sort::Create => "/payments",
            Sort::Note => "/notes/7",
            Sort::Replace => "/payments/7",
            Sort::Remove => "/orders/7",
        }
    }
}

/// Author of random requests, each with a mark of its own.
pub(crate) struct Author<'a> {
    pub(crate) chance: Chance,
    scene: u64,
    marks: usize,
    credentials: &'a Credentials,
    /// True if nothing else happens while the upstream adds late bytes.
    pub(crate) is_alone: bool,
    /// True if the upstream speaks HTTP/1. Over HTTP/2 it neither switches protocols nor answers before a body.
    pub(crate) speaks_http1: bool,
    /// Commands of this scene that may be retried.
    pub(crate) commands: Vec<Draft>,
}

impl<'a> Author<'a> {
    pub(crate) fn new(
        chance: Chance,
        scene: u64,
        credentials: &'a Credentials,
        is_alone: bool,
        speaks_http1: bool,
    ) -> Author<'a> {
        Author { chance, scene, marks: 0, credentials, is_alone, speaks_http1, commands: Vec::new() }
    }

    pub(crate) fn client(&mut self) -> Client {
        self.chance.pick(&Client::ALL)
    }

    /// Draws a client, with credentials most of the time.
    pub(crate) fn caller(&mut self) -> Client {
        if self.chance.percent(15) { Client::Guest } else { self.chance.pick(&Client::ALL[..3]) }
    }

    /// Returns the API key of a client that has one.
    pub(crate) fn key_of(&self, client: Client) -> &'a str {
        self.credentials.of(client).unwrap_or_default()
    }

    /// Makes a valid request of this kind.
    pub(crate) fn draft(&mut self, client: Client, sort: Sort) -> Draft {
        self.marks += 1;
        let mark = format!("m{}-{}", self.scene, self.marks);
        let is_command = sort.is_command();
        let body = match sort {
            Sort::Read | Sort::Search | Sort::Remove => Vec::new(),
            Sort::Store => format!("file of {mark}").into_bytes(),
            Sort::Create | Sort::Note | Sort::Replace => format!("{{\"of\":\"{mark}\"}}").into_bytes(),
        };
        let key = is_command.then(|| format!("key-of-the-request-{mark}"));
        let mut fields = vec![field("X-Mark", &mark)];
        if let Some(secret) = self.credentials.of(client) {
            fields.push(match self.chance.percent(50) {
                true => field("Authorization", &format!("Bearer {secret}")),
                false => field("X-Api-Key", secret),
            });
        }
        fields.extend(key.as_deref().map(|key| field("Idempotency-Key", key)));
        if !body.is_empty() {
            fields.push(field("Content-Type", "application/json"));
        }
        let is_known = !is_command || client != Client::Guest;
        let expectation = if is_known { Expectation::Accepted } else { Expectation::Refused };
        let ask = Ask {
            target: format!("{}?m={mark}", sort.path()),
            mark,
            client,
            method: sort.method().into(),
            body,
            key,
            is_command,
            may_upgrade: false,
            expectation,
            script: Script::Plain,
        };
        Draft { path: sort.path().into(), ask, fields, host: HOST.into() }
    }

    /// Makes a request to hide in another: every client may send it, and it claims to be of a tenant.
    pub(crate) fn hidden(&mut self) -> Draft {
        let draft = self.draft(Client::Guest, Sort::Read).with("Semel-Tenant", "acme");
        draft.with("Semel-Caller", "alice").refused()
    }

    /// Makes a command without credentials that claims to be of a tenant.
    pub(crate) fn forged(&mut self) -> Draft {
        let draft = self.draft(Client::Guest, Sort::Create).with("Semel-Tenant", "acme");
        let id = "018f0000-0000-7000-8000-000000000000";
        draft.with("Semel-Caller", "alice").with("Semel-Operation-Id", id).with("Semel-Attempt", "1")
    }
}

fn field(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (name.into(), value.into())
}

/// A request, part by part.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) ask: Ask,
    /// Path as it is sent.
    pub(crate) path: Vec<u8>,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) host: Vec<u8>,
}

impl Draft {
    pub(crate) fn with(self, name: &str, value: &str) -> Draft {
        self.with_bytes(name.as_bytes(), value.as_bytes())
    }

    pub(crate) fn with_bytes(mut self, name: &[u8], value: &[u8]) -> Draft {
        self.fields.push((name.to_vec(), value.to_vec()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Draft {
        self.fields.retain(|(other, _)| !other.eq_ignore_ascii_case(name.as_bytes()));
        self
    }

    /// Sets the upstream's behaviour. A response that a gateway cannot forward may be refused.
    pub(crate) fn answered(mut self, script: Script) -> Draft {
        self.ask.script = script;
        if self.ask.expectation == Expectation::Accepted && !script.is_whole() {
            self.ask.expectation = Expectation::Either;
        }
        self
    }

    /// Expects that the upstream never sees it.
    pub(crate) fn refused(mut self) -> Draft {
        self.ask.expectation = Expectation::Refused;
        self
    }

    /// Allows both, unless it must be refused anyway.
    pub(crate) fn either(mut self) -> Draft {
        if self.ask.expectation == Expectation::Accepted {
            self.ask.expectation = Expectation::Either;
        }
        self
    }

    /// Returns the target as it is sent.
    pub(crate) fn sent_target(&self) -> Vec<u8> {
        [&self.path[..], b"?m=", self.ask.mark.as_bytes()].concat()
    }

    /// Returns the request line and all fields, without the empty line.
    pub(crate) fn fields_over_http1(&self) -> Vec<u8> {
        let line =
            [self.ask.method.as_bytes(), b" ", &self.sent_target(), b" HTTP/1.1\r\nHost: ", &self.host];
        let mut head = [&line.concat()[..], b"\r\n"].concat();
        for (name, value) in &self.fields {
            head.extend([&name[..], b": ", value, b"\r\n"].concat());
        }
        head
    }

    /// Returns the head, with these framing lines.
    pub(crate) fn head(&self, framing: &[u8]) -> Vec<u8> {
        [&self.fields_over_http1()[..], framing, b"\r\n"].concat()
    }

    /// Returns the complete request, with a length.
    pub(crate) fn whole(&self) -> Vec<u8> {
        if self.ask.body.is_empty() {
            return self.head(b"");
        }
        let length = format!("Content-Length: {}\r\n", self.ask.body.len());
        [self.head(length.as_bytes()), self.ask.body.clone()].concat()
    }

    /// Returns the complete request in chunks, with these trailer lines.
    pub(crate) fn chunked(&self, chance: &mut Chance, trailers: &[u8]) -> Vec<u8> {
        let mut request = self.head(b"Transfer-Encoding: chunked\r\n");
        let mut rest = &self.ask.body[..];
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(1 + chance.index(rest.len()));
            let size = match chance.index(4) {
                0 => format!("{:X}\r\n", chunk.len()),
                1 => format!("{:x};a=b\r\n", chunk.len()),
                _ => format!("{:x}\r\n", chunk.len()),
            };
            request.extend([size.as_bytes(), chunk, b"\r\n"].concat());
            rest = after;
        }
        request.extend([b"0\r\n", trailers, b"\r\n"].concat());
        request
    }

    /// Returns the fields of its head over HTTP/2.
    pub(crate) fn fields_over_http2(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = vec![
            field(":method", &self.ask.method),
            field(":scheme", "http"),
            (b":path".to_vec(), self.sent_target()),
            (b":authority".to_vec(), self.host.clone()),
        ];
        fields.extend(self.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        fields
    }

    /// Returns its frames on the stream of this number.
    pub(crate) fn frames(&self, stream: i32) -> Vec<RawFrame> {
        let head = frames::head(stream, &self.fields_over_http2(), self.ask.body.is_empty());
        let data = (!self.ask.body.is_empty()).then(|| frames::data(stream, &self.ask.body, true));
        std::iter::once(head).chain(data).collect()
    }

    /// Makes a case of only this request, over HTTP/1.
    pub(crate) fn alone(self, group: Option<Group>, what: &'static str) -> Case {
        let bytes = self.whole();
        http1(group, what, vec![self], bytes)
    }

    /// Makes a case of only this request, over HTTP/2.
    pub(crate) fn alone_over_http2(self, group: Option<Group>, what: &'static str) -> Case {
        let steps = vec![self.frames(0)];
        http2(group, what, vec![self], steps)
    }
}

/// Makes a case of these requests in these bytes, each of which is answered.
pub(crate) fn http1(group: Option<Group>, what: &'static str, drafts: Vec<Draft>, bytes: Vec<u8>) -> Case {
    let wire = Wire::Http1 { pieces: vec![(After::Nothing, bytes)], ending: Ending::Keep };
    Case { group, what, asks: asks(drafts), hidden: Vec::new(), wire }
}

/// Makes a case of these requests in these frames, each of which is answered or reset.
pub(crate) fn http2(
    group: Option<Group>,
    what: &'static str,
    drafts: Vec<Draft>,
    steps: Vec<Vec<RawFrame>>,
) -> Case {
    let wire = Wire::Http2 { steps, abandoned: Vec::new(), ending: Ending::Keep };
    Case { group, what, asks: asks(drafts), hidden: Vec::new(), wire }
}

fn asks(drafts: Vec<Draft>) -> Vec<Ask> {
    drafts.into_iter().map(|draft| draft.ask).collect()
}

impl Case {
    /// Ends the case with a closed sending side: there may be no response.
    pub(crate) fn then_half_closed(mut self) -> Case {
        match &mut self.wire {
            Wire::Http1 { ending, .. } | Wire::Http2 { ending, .. } => *ending = Ending::HalfClose,
        }
        self
    }

    /// Ends the case with a client that leaves without a response.
    pub(crate) fn then_left(mut self) -> Case {
        match &mut self.wire {
            Wire::Http1 { ending, .. } | Wire::Http2 { ending, .. } => *ending = Ending::Leave,
        }
        for ask in &mut self.asks {
            if ask.expectation == Expectation::Accepted {
                ask.expectation = Expectation::Either;
            }
        }
        self
    }

    /// Adds requests hidden inside of others, which must stay there.
    pub(crate) fn hiding(mut self, hidden: Vec<Draft>) -> Case {
        self.hidden = asks(hidden);
        self
    }

    /// Sends the case in pieces, cut at random places.
    pub(crate) fn in_pieces(mut self, chance: &mut Chance) -> Case {
        if let Wire::Http1 { pieces, .. } = &mut self.wire {
            let Some((after, whole)) = pieces.pop() else { return self };
            let mut rest = &whole[..];
            while rest.len() > 1 && chance.percent(70) {
                let (piece, left) = rest.split_at(1 + chance.index(rest.len() - 1));
                pieces.push((after, piece.to_vec()));
                rest = left;
            }
            pieces.push((after, rest.to_vec()));
        }
        self
    }
}
