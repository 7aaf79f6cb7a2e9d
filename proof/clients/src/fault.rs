//! Faults of the proxy: what it does with one request, drawn from the seed, the command and the number of the request.
//!
//! A request meets one fault in every run of a seed: its command and its number decide, and not what runs beside it.

use semel_testkit::Chance;

/// Treatment of one request by the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Forwards the request, and the answer.
    None,
    /// Closes the connection without forwarding the request.
    DropRequest,
    /// Resets the connection without forwarding the request.
    ResetRequest,
    /// Forwards the request, and closes the connection in place of the answer.
    DropAnswer,
    /// Forwards the request, and resets the connection in place of the answer.
    ResetAnswer,
    /// Forwards the request, and closes the connection in the middle of the answer.
    CutAnswer,
    /// Forwards the request after a while.
    DelayRequest,
    /// Forwards the answer after a while.
    DelayAnswer,
    /// Answers with a server error without forwarding the request.
    ErrorBefore,
    /// Forwards the request, and answers with a server error in place of its answer.
    ErrorAfter,
    /// Forwards the request, and leaves the client without an answer until it gives up.
    Hang,
}

impl Fault {
    pub(crate) const ALL: [Fault; 11] = [
        Fault::None,
        Fault::DropRequest,
        Fault::ResetRequest,
        Fault::DropAnswer,
        Fault::ResetAnswer,
        Fault::CutAnswer,
        Fault::DelayRequest,
        Fault::DelayAnswer,
        Fault::ErrorBefore,
        Fault::ErrorAfter,
        Fault::Hang,
    ];

    /// Returns the share of requests that meet this fault, in thousandths.
    fn share(self) -> u64 {
        match self {
            Fault::None => 579,
            Fault::DelayRequest | Fault::DelayAnswer => 40,
            Fault::ErrorBefore | Fault::ErrorAfter => 60,
            // It takes a client the whole timeout of an attempt.
            Fault::Hang => 1,
            Fault::DropRequest
            | Fault::ResetRequest
            | Fault::DropAnswer
            | Fault::ResetAnswer
            | Fault::CutAnswer => 44,
        }
    }

    /// Returns the name in the figures.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::DropRequest => "request dropped",
            Fault::ResetRequest => "request reset",
            Fault::DropAnswer => "answer dropped",
            Fault::ResetAnswer => "answer reset",
            Fault::CutAnswer => "answer cut",
            Fault::DelayRequest => "request delayed",
            Fault::DelayAnswer => "answer delayed",
            Fault::ErrorBefore => "5xx, not forwarded",
            Fault::ErrorAfter => "5xx, forwarded",
            Fault::Hang => "no answer",
        }
    }

    /// Draws the fault of a request.
    pub(crate) fn draw(chance: &mut Chance) -> Fault {
        let mut left = chance.below(1000);
        for fault in Fault::ALL {
            if left < fault.share() {
                return fault;
            }
            left -= fault.share();
        }
        Fault::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_a_whole() {
        assert_eq!(Fault::ALL.map(Fault::share).iter().sum::<u64>(), 1000);
    }
}
