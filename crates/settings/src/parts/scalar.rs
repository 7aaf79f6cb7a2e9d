//! The kinds that are one text: durations, sizes, numbers, addresses, names.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderName, StatusCode};
use semel_core::{JsonPointer, OperationName, Tier};

use crate::engine::kind::{ValueKind, ValueRefusal, quoted};
use crate::engine::units::{MAX_DURATION, MAX_SIZE, parse_duration, parse_size, show_duration, show_size};

/// A duration that may be zero.
pub(crate) struct WaitTime;

impl ValueKind for WaitTime {
    type Value = Duration;

    fn expected() -> String {
        "a duration such as \"200ms\", \"30s\", \"1h30m\" or \"7d\"".to_owned()
    }

    fn parse(text: &str) -> Result<Duration, ValueRefusal> {
        match parse_duration(text) {
            Some(duration) if duration <= MAX_DURATION => Ok(duration),
            Some(_) => {
                Err(ValueRefusal::Because(format!("it is longer than {}", show_duration(MAX_DURATION))))
            }
            None => Err(ValueRefusal::Unexpected),
        }
    }

    fn show(value: &Duration) -> Option<String> {
        Some(quoted(&show_duration(*value)))
    }
}

/// A duration longer than zero.
pub(crate) struct Period;

impl ValueKind for Period {
    type Value = Duration;

    fn expected() -> String {
        WaitTime::expected()
    }

    fn parse(text: &str) -> Result<Duration, ValueRefusal> {
        match WaitTime::parse(text)? {
            Duration::ZERO => Err(ValueRefusal::Because("it must be longer than zero".to_owned())),
            period => Ok(period),
        }
    }

    fn show(value: &Duration) -> Option<String> {
        WaitTime::show(value)
    }
}

/// Yes or no.
pub(crate) struct Switch;

impl ValueKind for Switch {
    type Value = bool;
    const BARE_BOOLEAN: bool = true;

    fn expected() -> String {
        "true or false".to_owned()
    }

    fn choices() -> Vec<&'static str> {
        vec!["true", "false"]
    }

    fn parse(text: &str) -> Result<bool, ValueRefusal> {
        text.parse().map_err(|_| ValueRefusal::Unexpected)
    }

    fn show(value: &bool) -> Option<String> {
        Some(value.to_string())
    }
}

/// A number of bytes, at least `MIN`.
pub(crate) struct Size<const MIN: u64>;

impl<const MIN: u64> ValueKind for Size<MIN> {
    type Value = usize;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        let example = "a size such as \"64KiB\", \"1MiB\", \"10MB\" or 4096";
        let most = show_size(MAX_SIZE);
        if MIN == 0 {
            format!("{example}, at most {most}")
        } else {
            format!("{example}, from {} to {most}", show_size(MIN))
        }
    }

    fn parse(text: &str) -> Result<usize, ValueRefusal> {
        let size = parse_size(text).filter(|size| *size >= MIN).ok_or(ValueRefusal::Unexpected)?;
        usize::try_from(size).map_err(|_| ValueRefusal::Unexpected)
    }

    fn show(value: &usize) -> Option<String> {
        Some(quoted(&show_size(*value as u64)))
    }
}

/// A size in bytes, at most `MAX`.
pub(crate) struct SizeUpTo<const MAX: usize>;

impl<const MAX: usize> ValueKind for SizeUpTo<MAX> {
    type Value = usize;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        format!("a size such as \"64KiB\", \"1MiB\", \"10MB\" or 4096, at most {}", show_size(MAX as u64))
    }

    fn parse(text: &str) -> Result<usize, ValueRefusal> {
        Size::<0>::parse(text).ok().filter(|size| *size <= MAX).ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &usize) -> Option<String> {
        Size::<0>::show(value)
    }
}

/// A number of things, from `MIN` to `MAX`.
pub(crate) struct Count<const MIN: usize, const MAX: usize>;

impl<const MIN: usize, const MAX: usize> ValueKind for Count<MIN, MAX> {
    type Value = usize;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        format!("an integer from {MIN} to {MAX}")
    }

    fn parse(text: &str) -> Result<usize, ValueRefusal> {
        let count = text.parse().ok().filter(|count| (MIN..=MAX).contains(count));
        count.ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &usize) -> Option<String> {
        Some(value.to_string())
    }
}

/// A number of tries, from `MIN` to `MAX`.
pub(crate) struct TryCount<const MIN: usize, const MAX: usize>;

impl<const MIN: usize, const MAX: usize> ValueKind for TryCount<MIN, MAX> {
    type Value = u32;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        Count::<MIN, MAX>::expected()
    }

    fn parse(text: &str) -> Result<u32, ValueRefusal> {
        u32::try_from(Count::<MIN, MAX>::parse(text)?).map_err(|_| ValueRefusal::Unexpected)
    }

    fn show(value: &u32) -> Option<String> {
        Some(value.to_string())
    }
}

impl ValueKind for SocketAddr {
    type Value = SocketAddr;

    fn expected() -> String {
        "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"".to_owned()
    }

    fn parse(text: &str) -> Result<SocketAddr, ValueRefusal> {
        text.parse().map_err(|_| match text.strip_prefix("localhost:") {
            Some(port) => ValueRefusal::DidYouMean(format!("127.0.0.1:{port}")),
            None => ValueRefusal::Unexpected,
        })
    }

    fn show(value: &SocketAddr) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

impl ValueKind for HeaderName {
    type Value = HeaderName;

    fn expected() -> String {
        "a header's name, such as \"X-Caller\"".to_owned()
    }

    fn parse(text: &str) -> Result<HeaderName, ValueRefusal> {
        text.parse().map_err(|_| ValueRefusal::Unexpected)
    }

    /// Shows the name with a capital in each word.
    fn show(value: &HeaderName) -> Option<String> {
        let capital = |word: &str| match word.split_at_checked(1) {
            Some((first, rest)) => first.to_ascii_uppercase() + rest,
            None => String::new(),
        };
        let words: Vec<_> = value.as_str().split('-').map(capital).collect();
        Some(quoted(&words.join("-")))
    }
}

/// Number of a tier.
impl ValueKind for Tier {
    type Value = Tier;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        "the tier of a store: 1, 2 or 3".to_owned()
    }

    fn choices() -> Vec<&'static str> {
        vec!["1", "2", "3"]
    }

    fn parse(text: &str) -> Result<Tier, ValueRefusal> {
        let tier = Tier::ALL.into_iter().find(|tier| tier.number().to_string() == text);
        tier.ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &Tier) -> Option<String> {
        Some(value.number().to_string())
    }
}

/// Status that can mean "not executed": no success is one.
impl ValueKind for StatusCode {
    type Value = StatusCode;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        "an HTTP status from 400 to 599".to_owned()
    }

    fn parse(text: &str) -> Result<StatusCode, ValueRefusal> {
        let status = text.parse().ok().filter(|status: &StatusCode| (400..600).contains(&status.as_u16()));
        status.ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &StatusCode) -> Option<String> {
        Some(value.as_str().to_owned())
    }
}

impl ValueKind for JsonPointer {
    type Value = JsonPointer;

    fn expected() -> String {
        "a JSON Pointer such as \"/payment/reference\"".to_owned()
    }

    fn parse(text: &str) -> Result<JsonPointer, ValueRefusal> {
        JsonPointer::parse(text).map_err(|error| ValueRefusal::Because(error.to_string()))
    }

    fn show(value: &JsonPointer) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

impl ValueKind for OperationName {
    type Value = OperationName;

    fn expected() -> String {
        "the name of an operation, such as \"payments.create\"".to_owned()
    }

    fn parse(text: &str) -> Result<OperationName, ValueRefusal> {
        OperationName::new(text).map_err(|error| ValueRefusal::Because(error.to_string()))
    }

    fn show(value: &OperationName) -> Option<String> {
        Some(quoted(value.as_str()))
    }
}
