//! The spelling of numbers, and the one question behind [`Numbers::Exact`]: do two texts have the same value?
//! Nothing here computes that value, so an absurd exponent costs no more than its digits.

use super::{NotCanonical, Numbers};

/// Writes a JSON number as `numbers` asks.
pub(super) fn write(text: &str, numbers: Numbers, out: &mut String) -> Result<(), NotCanonical> {
    match plain(text) {
        Some(spelling) => out.push_str(spelling),
        None => search(text, numbers, out)?,
    }
    Ok(())
}

/// The spelling of a number without an exponent that is short enough for every double to hold it: two such numbers never
/// share a double, so that its own digits are the fewest that lead back to it. Most numbers are like this, and only the
/// zeros at the end of a fraction have to go. `None` if there is none to be seen.
fn plain(text: &str) -> Option<&str> {
    /// As many decimal digits as every double keeps.
    const MAX_DIGITS: usize = 15;
    /// With more zeros behind the point, RFC 8785 has an exponent.
    const TOO_SMALL: &str = "000000";
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = match unsigned.bytes().position(|byte| !byte.is_ascii_digit()) {
        None => (unsigned, ""),
        Some(point) => (&unsigned[..point], unsigned[point..].strip_prefix('.')?),
    };
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = fraction.trim_end_matches('0');
    let is_negative_zero = (whole, kept) == ("0", "") && text.starts_with('-');
    if whole.len() + kept.len() > MAX_DIGITS
        || is_negative_zero
        || (whole == "0" && kept.starts_with(TOO_SMALL))
    {
        return None;
    }
    let removed = if kept.is_empty() { unsigned.len() - whole.len() } else { fraction.len() - kept.len() };
    Some(&text[..text.len() - removed])
}

/// The spelling of any number, by way of the double that is nearest to it.
fn search(text: &str, numbers: Numbers, out: &mut String) -> Result<(), NotCanonical> {
    let double: f64 = text.parse().expect("every JSON number is a Rust floating point literal");
    let mut buffer = ryu_js::Buffer::new();
    let nearest = double.is_finite().then(|| buffer.format_finite(double));
    match numbers {
        Numbers::Rfc8785 => out.push_str(nearest.ok_or(NotCanonical::NumberOutOfRange)?),
        Numbers::Exact => out.push_str(nearest.filter(|nearest| same_value(text, nearest)).unwrap_or(text)),
    }
    Ok(())
}

/// Whether two JSON numbers are exactly the same decimal value. An exponent too large to count says no.
pub(super) fn same_value(left: &str, right: &str) -> bool {
    match (Decimal::read(left), Decimal::read(right)) {
        (Some(left), Some(right)) => left.same_value(&right),
        (None, _) | (_, None) => false,
    }
}

/// `±0.d₁d₂d₃… × 10^point`, where neither the first nor the last digit is zero; zero has no digits.
/// The digits are those of `whole` followed by those of `fraction`.
#[derive(Default)]
struct Decimal<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    point: i64,
}

impl<'a> Decimal<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        if whole.is_empty() && fraction.is_empty() {
            return Some(Self::default());
        }
        let digits = fraction.trim_start_matches('0');
        let negative = mantissa.starts_with('-');
        let exponent: i64 = exponent.parse().ok()?;
        Some(if whole.is_empty() {
            let point = exponent.checked_sub_unsigned((fraction.len() - digits.len()) as u64)?;
            Self { negative, whole, fraction: digits, point }
        } else {
            let point = exponent.checked_add_unsigned(whole.len() as u64)?;
            let whole = if fraction.is_empty() { whole.trim_end_matches('0') } else { whole };
            Self { negative, whole, fraction, point }
        })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    fn same_value(&self, other: &Self) -> bool {
        self.negative == other.negative && self.point == other.point && self.digits().eq(other.digits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> String {
        let mut out = String::new();
        write(text, Numbers::Exact, &mut out).expect("exact numbers are always written");
        out
    }

    #[test]
    fn one_value_has_one_spelling() {
        for one in ["1", "1.0", "1e0", "1E+0", "10e-1", "100e-2", "0.1e1", "0.001e3", "1.000e-00"] {
            assert_eq!(exact(one), "1", "{one}");
        }
        for zero in ["0", "-0", "0.0", "-0.00e5", "0e99999999999999999999999", "-0E-99999999999999999999999"]
        {
            assert_eq!(exact(zero), "0", "{zero}");
        }
        for (text, spelling) in [
            ("-2.50", "-2.5"),
            ("1e21", "1e+21"),
            ("100000000000000000000", "100000000000000000000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("9007199254740992.0", "9007199254740992"),
        ] {
            assert_eq!(exact(text), spelling, "{text}");
        }
    }

    #[test]
    fn what_is_seen_at_once_is_what_the_search_would_find() {
        let edges = [
            ("0", Some("0")),
            ("0.000", Some("0")),
            ("-0", None),
            ("-0.0", None),
            ("7", Some("7")),
            ("-7.00", Some("-7")),
            ("100", Some("100")),
            ("100.10", Some("100.1")),
            ("-0.5", Some("-0.5")),
            ("0.000001", Some("0.000001")),
            ("0.0000010", Some("0.000001")),
            ("0.0000001", None),
            ("999999999999999", Some("999999999999999")),
            ("-999999999999.99900", Some("-999999999999.999")),
            ("1000000000000000", None),
            ("99999999999999.99", None),
            ("0.999999999999999", None),
            ("1e3", None),
            ("1.50e10", None),
            ("1.5E0", None),
            ("0e0", None),
        ];
        for (text, spelling) in edges {
            assert_eq!(plain(text), spelling, "{text}");
        }
        let some = (0..100_000_u64).map(|number| {
            let digits = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (14 + number % 50)).to_string();
            let (point, zeros) = (number as usize % (digits.len() + 8), "0".repeat(number as usize % 3));
            let digits = format!("{digits:0>width$}", width = point + 1);
            let (whole, fraction) = digits.split_at(digits.len() - point);
            let (sign, whole) = (if number % 5 == 0 { "-" } else { "" }, whole.trim_start_matches('0'));
            let whole = if whole.is_empty() { "0" } else { whole };
            if point == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}{zeros}") }
        });
        let mut seen = 0;
        for text in some {
            for numbers in [Numbers::Exact, Numbers::Rfc8785] {
                let mut found = String::new();
                search(&text, numbers, &mut found).expect("it is within range");
                if let Some(spelling) = plain(&text) {
                    assert_eq!(spelling, found, "{text}");
                    seen += 1;
                }
            }
        }
        assert!((20_000..180_000).contains(&seen), "{seen} of 200,000 are no fair sample");
    }

    #[test]
    fn sign_digits_and_magnitude_make_the_value() {
        assert!(same_value("120e-1", "1.2E1"));
        for other in ["-12", "1.2", "120", "13", "12.01", "0"] {
            assert!(!same_value("12", other), "{other}");
        }
    }

    #[test]
    fn a_number_that_no_double_holds_keeps_its_text() {
        for text in [
            "9007199254740993",
            "9007199254740993.0",
            "333333333.33333329",
            "0.1000000000000000055511151231257827",
            "1e400",
            "-10e399",
            "1e-400",
            "1e999999999999999999999",
            "1e-999999999999999999999",
            "1e9223372036854775807",
            "0.1e-9223372036854775808",
            "10e9223372036854775807",
        ] {
            assert_eq!(exact(text), text);
        }
    }

    #[test]
    fn long_runs_of_zeros_do_not_change_the_value() {
        let zeros = "0".repeat(100_000);
        assert_eq!(exact(&format!("7{zeros}e-100000")), "7");
        assert_eq!(exact(&format!("7.{zeros}")), "7");
        assert_eq!(exact(&format!("0.{zeros}7e100001")), "7");
    }

    #[test]
    fn rfc_8785_rounds_and_has_no_infinity() {
        let mut out = String::new();
        assert_eq!(write("333333333.33333329", Numbers::Rfc8785, &mut out), Ok(()));
        assert_eq!(out, "333333333.3333333");
        assert_eq!(write("-1e309", Numbers::Rfc8785, &mut out), Err(NotCanonical::NumberOutOfRange));
    }
}
