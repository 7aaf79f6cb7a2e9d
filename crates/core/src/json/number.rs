//! The spelling of numbers, and the one question behind [`Numbers::Exact`]: do two texts have the same value?
//! Nothing here computes that value, so an absurd exponent costs no more than its digits.

use super::{NotCanonical, Numbers};

/// Writes a JSON number as `numbers` asks.
pub(super) fn write(text: &str, numbers: Numbers, out: &mut String) -> Result<(), NotCanonical> {
    if is_written_canonically(text) {
        out.push_str(text);
        return Ok(());
    }
    let double: f64 = text.parse().expect("every JSON number is a Rust floating point literal");
    let mut buffer = ryu_js::Buffer::new();
    let nearest = double.is_finite().then(|| buffer.format_finite(double));
    match numbers {
        Numbers::Rfc8785 => out.push_str(nearest.ok_or(NotCanonical::NumberOutOfRange)?),
        Numbers::Exact => out.push_str(nearest.filter(|nearest| same_value(text, nearest)).unwrap_or(text)),
    }
    Ok(())
}

/// Whether it is an integer that every reader holds exactly, in its only spelling: most numbers are, and need no search for
/// another.
fn is_written_canonically(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.len() <= 15
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !digits.starts_with('0'))
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
    fn what_is_taken_as_it_is_written_is_what_the_search_would_find() {
        let edges = [
            "0",
            "-0",
            "7",
            "-7",
            "10",
            "-999999999999999",
            "999999999999999",
            "1000000000000000",
            "1.0",
            "1e3",
        ];
        let some = (0..10_000_i64).map(|number| (number * 7_919_777_333 - 39_000_000_000_000).to_string());
        for text in edges.map(str::to_owned).into_iter().chain(some) {
            let double: f64 = text.parse().expect("it is a number");
            let found = ryu_js::Buffer::new().format_finite(double).to_owned();
            assert_eq!(
                is_written_canonically(&text),
                found == text && text.trim_start_matches('-').len() <= 15,
                "{text}"
            );
            assert_eq!(exact(&text), found);
        }
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
