//! Decimal numbers of any size, to compare by school arithmetic: an oracle for the one text of a number.
//!
//! A number is an integer times a power of ten. Two are compared after the one with the larger power is multiplied out,
//! digit by digit. The power is `huge × 10^40 + small`, so that exponents beyond every machine number can be written and
//! compared without any arithmetic on them but on the small part.

use proptest::prelude::*;

use super::model::Choices;

/// `±digits × 10^(huge × 10^40 + small)`.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    negative: bool,
    /// Any digits, with leading and trailing zeros.
    digits: String,
    huge: i8,
    small: i32,
}

/// Numbers around the limits of a double, and far beyond them.
pub(super) fn decimal() -> impl Strategy<Value = Decimal> {
    let digits = prop_oneof!["[0-9]{1,4}", "90071992547409[0-9]{2}", "[0-9]{15,40}", "0{0,30}[1-9]0{0,30}"];
    let small = prop_oneof![-30..30, -420..420, -10_000..10_000, Just(999_999)];
    (any::<bool>(), digits, prop_oneof![8 => Just(0_i8), 1 => Just(1), 1 => Just(-1)], small)
        .prop_map(|(negative, digits, huge, small)| Decimal { negative, digits, huge, small })
}

impl Decimal {
    /// Parses a text as the subject writes it.
    pub(super) fn read(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "+0"));
        let unsigned = mantissa.trim_start_matches('-');
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let (huge, small) = read_power(exponent);
        Self {
            negative: mantissa.starts_with('-'),
            digits: format!("{whole}{fraction}"),
            huge,
            small: small - fraction.len() as i32,
        }
    }

    /// Returns true if both have the same value.
    pub(super) fn equals(&self, other: &Self) -> bool {
        if self.is_zero() || other.is_zero() {
            return self.is_zero() && other.is_zero();
        }
        let common = self.small.min(other.small);
        // Numbers further apart have different numbers of digits.
        let near = (self.small - other.small).unsigned_abs() < 200;
        near && self.huge == other.huge
            && self.negative == other.negative
            && self.multiplied(common) == other.multiplied(common)
    }

    fn is_zero(&self) -> bool {
        self.digits.bytes().all(|digit| digit == b'0')
    }

    /// Returns the integer that is left after division by `10^power`.
    fn multiplied(&self, power: i32) -> String {
        let zeros = "0".repeat((self.small - power) as usize);
        format!("{}{zeros}", self.digits).trim_start_matches('0').to_owned()
    }

    /// Returns numbers close to this one: the next digit, ten times as large, the other sign.
    pub(super) fn neighbours(&self, choices: &mut Choices) -> Vec<Self> {
        let mut further = self.digits.clone().into_bytes();
        let at = choices.below(further.len());
        further[at] = b'0' + (further[at] - b'0' + 1) % 10;
        let digits = String::from_utf8(further).expect("digits are ASCII");
        vec![
            Self { digits, ..self.clone() },
            Self { small: self.small + 1, ..self.clone() },
            Self { negative: !self.negative, ..self.clone() },
            Self { digits: format!("0{}0", self.digits), small: self.small - 1, ..self.clone() },
        ]
    }

    /// Writes the number with zeros on both sides, the point anywhere, and an exponent that compensates.
    pub(super) fn spell(&self, choices: &mut Choices) -> String {
        let trailing = choices.below(4);
        let digits = format!("{}{}", self.digits, "0".repeat(trailing));
        let (whole, fraction) = digits.split_at(choices.below(digits.len() + 1));
        let significant = whole.trim_start_matches('0');
        let whole = if significant.is_empty() { "0" } else { significant };
        let small = self.small - trailing as i32 + fraction.len() as i32;
        let sign = if self.negative { "-" } else { "" };
        let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
        if self.huge == 0 && small == 0 && choices.below(2) == 0 {
            return format!("{sign}{whole}{fraction}");
        }
        let exponent = write_power(self.huge, small);
        let exponent = match (exponent.strip_prefix('-'), choices.below(3)) {
            (Some(magnitude), 0) => format!("-00{magnitude}"),
            (None, 0) => format!("+00{exponent}"),
            (None, 1) => format!("+{exponent}"),
            (Some(_), _) | (None, _) => exponent,
        };
        format!("{sign}{whole}{fraction}{}{exponent}", ["e", "E"][choices.below(2)])
    }
}

/// Number of digits to which the small part of an exponent is padded: `10^40` has one more.
const WIDTH: usize = 40;

/// Returns `huge × 10^40 + small` in decimal digits.
fn write_power(huge: i8, small: i32) -> String {
    let complement = |small: i32| {
        // 10^40 − small, for a small number above zero.
        format!("{:9>31}{:0>9}", "", 1_000_000_000 - small)
    };
    match (huge, small) {
        (0, small) => small.to_string(),
        (1, 0..) => format!("1{small:0>WIDTH$}"),
        (1, _) => complement(-small),
        (-1, ..=0) => format!("-1{:0>WIDTH$}", -small),
        (-1, _) => format!("-{}", complement(small)),
        _ => unreachable!("only these are generated"),
    }
}

/// Parses an exponent into its two parts.
fn read_power(text: &str) -> (i8, i32) {
    let (sign, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) => (-1, magnitude),
        None => (1, text.trim_start_matches('+')),
    };
    if magnitude.len() < WIDTH {
        return (0, sign * magnitude.parse::<i32>().expect("a small exponent"));
    }
    if let Some(above) = magnitude.strip_prefix('1').filter(|above| above.len() == WIDTH) {
        return (sign as i8, sign * above.parse::<i32>().expect("a small part"));
    }
    let end = magnitude.strip_prefix(&"9".repeat(31)).expect("just below a power of ten");
    (sign as i8, sign * (end.parse::<i32>().expect("nine digits") - 1_000_000_000))
}
