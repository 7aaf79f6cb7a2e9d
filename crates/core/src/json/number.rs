//! Spelling of numbers, and the exact comparison behind [`Numbers::Exact`]. No value is ever computed: a text
//! grows by at most the 21 zeros that RFC 8785 writes out, and an absurd exponent costs no more than its
//! digits.

use std::fmt::Write as _;

use super::{NotCanonical, Numbers};

/// Writes a JSON number as `numbers` asks.
pub(super) fn write(text: &str, numbers: Numbers, out: &mut String) -> Result<(), NotCanonical> {
    match plain(text) {
        Some(spelling) => out.push_str(spelling),
        None => search(text, numbers, out)?,
    }
    Ok(())
}

/// Returns the spelling of a number without exponent that is short enough for every double to hold: no two
/// such numbers share a double, so its own digits are the shortest that round-trip. Most numbers are like
/// this, and lose only the zeros at the end of a fraction. `None` for any other number.
fn plain(text: &str) -> Option<&str> {
    /// Number of decimal digits that every double keeps.
    const MAX_DIGITS: usize = 15;
    /// RFC 8785 uses an exponent for more zeros behind the point.
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

/// Writes any number, by way of the nearest double.
fn search(text: &str, numbers: Numbers, out: &mut String) -> Result<(), NotCanonical> {
    let double: f64 = text.parse().expect("every JSON number is a Rust floating point literal");
    let mut buffer = ryu_js::Buffer::new();
    let nearest = double.is_finite().then(|| buffer.format_finite(double));
    match numbers {
        Numbers::Rfc8785 => out.push_str(nearest.ok_or(NotCanonical::NumberOutOfRange)?),
        Numbers::Exact => {
            let value = Decimal::read(text);
            match nearest.filter(|nearest| value.same_value(&Decimal::read(nearest))) {
                Some(nearest) => out.push_str(nearest),
                None => value.write(out),
            }
        }
    }
    Ok(())
}

/// Returns true if two JSON numbers have exactly the same decimal value.
pub(super) fn same_value(left: &str, right: &str) -> bool {
    Decimal::read(left).same_value(&Decimal::read(right))
}

/// `±d₁.d₂d₃… × 10^power` without zeros as first or last digit; zero has no digits. The digits are those of
/// `whole` followed by those of `fraction`.
#[derive(Default)]
struct Decimal<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    power: Power,
}

impl<'a> Decimal<'a> {
    fn read(text: &'a str) -> Self {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        if whole.is_empty() && fraction.is_empty() {
            return Self::default();
        }
        let digits = fraction.trim_start_matches('0');
        let negative = mantissa.starts_with('-');
        if whole.is_empty() {
            let leading_zeros = length(fraction) - length(digits);
            Self { negative, whole, fraction: digits, power: Power::sum(exponent, -1 - leading_zeros) }
        } else {
            let power = Power::sum(exponent, length(whole) - 1);
            let whole = if fraction.is_empty() { whole.trim_end_matches('0') } else { whole };
            Self { negative, whole, fraction, power }
        }
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    fn same_value(&self, other: &Self) -> bool {
        self.negative == other.negative && self.power == other.power && self.digits().eq(other.digits())
    }

    /// Writes the normal text: the layout of RFC 8785 (ECMAScript's `Number::toString`), with every digit.
    fn write(&self, out: &mut String) {
        let count = self.whole.len() + self.fraction.len();
        if count == 0 {
            return out.push('0');
        }
        if self.negative {
            out.push('-');
        }
        match self.power {
            Power::Plain(power @ 0..=20) => {
                let before_point = power as usize + 1;
                self.write_split(before_point.min(count), out);
                out.extend(std::iter::repeat_n('0', before_point.saturating_sub(count)));
            }
            Power::Plain(power @ -6..=-1) => {
                out.push_str("0.");
                out.extend(std::iter::repeat_n('0', power.unsigned_abs() as usize - 1));
                self.write_split(count, out);
            }
            Power::Plain(_) | Power::Huge { .. } => {
                self.write_split(1, out);
                self.power.write(out);
            }
        }
    }

    /// Writes the digits with a decimal point behind the first `before_point` of them, if others follow.
    fn write_split(&self, before_point: usize, out: &mut String) {
        for (index, digit) in self.digits().enumerate() {
            if index == before_point {
                out.push('.');
            }
            out.push(char::from(digit));
        }
    }
}

/// A power of ten of any size, in one form for each value: `Huge` only beyond the range of `Plain`.
#[derive(PartialEq, Eq)]
enum Power {
    Plain(i128),
    /// Digits of the magnitude, the first not zero.
    Huge {
        negative: bool,
        digits: String,
    },
}

impl Default for Power {
    fn default() -> Self {
        Power::Plain(0)
    }
}

impl Power {
    /// Returns the sum of the exponent of a JSON number and the length of a text.
    fn sum(exponent: &str, shift: i128) -> Self {
        if let Some(sum) = exponent.parse().ok().and_then(|exponent: i128| exponent.checked_add(shift)) {
            return Power::Plain(sum);
        }
        let negative = exponent.starts_with('-');
        let magnitude = exponent.trim_start_matches(['+', '-']).trim_start_matches('0');
        let digits = shifted(magnitude, if negative { -shift } else { shift });
        let sign = if negative { "-" } else { "" };
        match format!("{sign}{digits}").parse() {
            Ok(sum) => Power::Plain(sum),
            Err(_) => Power::Huge { negative, digits },
        }
    }

    /// Writes the exponent as RFC 8785 does: a letter, always a sign, and the digits.
    fn write(&self, out: &mut String) {
        match self {
            Power::Plain(power) => write!(out, "e{power:+}").expect("a String takes everything"),
            Power::Huge { negative, digits } => {
                out.push_str(if *negative { "e-" } else { "e+" });
                out.push_str(digits);
            }
        }
    }
}

/// Returns the sum of decimal digits and a far smaller number, without leading zeros: only lengths of texts
/// are added to exponents that no `i128` holds.
fn shifted(digits: &str, by: i128) -> String {
    let mut carry = by;
    let mut reversed: String = digits
        .bytes()
        .rev()
        .map(|digit| {
            let value = i128::from(digit - b'0') + carry;
            carry = value.div_euclid(10);
            char::from(b'0' + value.rem_euclid(10) as u8)
        })
        .collect();
    while carry > 0 {
        reversed.push(char::from(b'0' + (carry % 10) as u8));
        carry /= 10;
    }
    reversed.trim_end_matches('0').chars().rev().collect()
}

fn length(text: &str) -> i128 {
    text.len() as i128
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
    fn fast_path_spells_numbers_like_the_full_search() {
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
    fn spellings_of_a_number_beyond_double_precision_share_a_normal_text() {
        for (normal, spellings) in [
            (
                "9007199254740993",
                &["9007199254740993", "9007199254740993.0", "9007199254740993e0", "900719925474099300E-2"][..],
            ),
            ("-9007199254740993", &["-9007199254740993.000", "-0.9007199254740993e16"]),
            ("333333333.33333329", &["333333333.33333329", "33333333333333329e-8"]),
            ("0.0000011000000000000000055511151231257827", &["11000000000000000055511151231257827e-40"]),
            ("1.1000000000000000055511151231257827e-7", &["0.00000011000000000000000055511151231257827"]),
            ("123456789012345678901", &["123456789012345678901", "123456789012345678.901e3"]),
            ("123456789012345678910", &["12345678901234567891e1"]),
            ("1.23456789012345678901e+21", &["1234567890123456789010", "1234567890123456789.01e+3"]),
            ("1e+400", &["1e400", "10E399", "1.0e+0400", "0.0001e404"]),
            ("-1e-400", &["-1e-400", "-0.1e-399", "-10e-401"]),
            ("1e+1000000", &["1e1000000", "10e999999"]),
            ("1e+999999999999999999999", &["1e999999999999999999999", "0.1e1000000000000000000000"]),
            (
                "1.2e+10000000000000000000000000000000000000000",
                &[
                    "12e9999999999999999999999999999999999999999",
                    "0.0012E+0010000000000000000000000000000000000000003",
                ],
            ),
            (
                "1.2e-9999999999999999999999999999999999999999",
                &[
                    "0.12e-9999999999999999999999999999999999999998",
                    "12e-10000000000000000000000000000000000000000",
                ],
            ),
            // The values pass the limits of an `i128` without a visible effect.
            (
                "1e+170141183460469231731687303715884105727",
                &[
                    "1e170141183460469231731687303715884105727",
                    "0.1e170141183460469231731687303715884105728",
                    "10e170141183460469231731687303715884105726",
                ],
            ),
            (
                "1e+170141183460469231731687303715884105728",
                &[
                    "10e170141183460469231731687303715884105727",
                    "0.1e170141183460469231731687303715884105729",
                ],
            ),
            (
                "1e-170141183460469231731687303715884105728",
                &[
                    "10e-170141183460469231731687303715884105729",
                    "0.1e-170141183460469231731687303715884105727",
                ],
            ),
            (
                "1e-170141183460469231731687303715884105729",
                &[
                    "0.1e-170141183460469231731687303715884105728",
                    "100e-170141183460469231731687303715884105731",
                ],
            ),
        ] {
            for text in spellings.iter().chain([&normal]) {
                assert_eq!(exact(text), normal, "{text}");
                assert!(same_value(text, normal), "{text}");
            }
        }
    }

    #[test]
    fn normalizing_a_number_adds_at_most_21_bytes() {
        for text in ["1e1000000", "1e-1000000", "9007199254740993e4", "1e20", "123456789012345678e3", "1e-6"]
        {
            assert!(exact(text).len() <= text.len() + 21, "{text}");
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
