//! JSON values to generate, mutate, and write in every spelling that JSON has.

use std::collections::BTreeMap;

use proptest::prelude::*;

/// A JSON value. A number is `mantissa × 10^exponent` with at most 15 digits and no trailing zero, so that its
/// canonical spelling is exact and equal values are equal models.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number { mantissa: i64, exponent: i32 },
    String(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

/// Returns any value, nested a few levels.
pub(crate) fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        (-999i64..=999, -3i32..=3).prop_map(|(mantissa, exponent)| number(mantissa, exponent)),
        (-999_999_999_999_999i64..=999_999_999_999_999, -40i32..=40)
            .prop_map(|(mantissa, exponent)| number(mantissa, exponent)),
        text().prop_map(Json::String),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            prop::collection::btree_map(text(), inner, 0..6).prop_map(Json::Object),
        ]
    })
}

/// Returns strings with control characters, quotes, and characters on both sides of the surrogates.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => prop::char::range('a', 'c'),
        1 => prop::char::range('\0', '\u{ff}'),
        1 => prop::char::range('\u{d700}', '\u{e100}'),
        1 => prop::char::range('\u{ff00}', '\u{10100}'),
        1 => any::<char>(),
    ];
    prop::collection::vec(character, 0..6).prop_map(|characters| characters.into_iter().collect())
}

fn number(mut mantissa: i64, mut exponent: i32) -> Json {
    if mantissa == 0 {
        return Json::Number { mantissa, exponent: 0 };
    }
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    Json::Number { mantissa, exponent }
}

/// Choices that follow from a seed, so that a failing case shrinks and repeats.
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound` (SplitMix64).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

impl Json {
    /// Writes the value in one of its many spellings.
    pub(crate) fn spell(&self, choices: &mut Choices) -> String {
        let mut out = String::new();
        self.spell_into(choices, &mut out);
        out
    }

    fn spell_into(&self, choices: &mut Choices, out: &mut String) {
        spell_whitespace(choices, out);
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(&value.to_string()),
            Json::Number { mantissa, exponent } => out.push_str(&spell_number(*mantissa, *exponent, choices)),
            Json::String(text) => spell_string(text, choices, out),
            Json::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    element.spell_into(choices, out);
                }
                spell_whitespace(choices, out);
                out.push(']');
            }
            Json::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                for last in (1..members.len()).rev() {
                    members.swap(last, choices.below(last + 1));
                }
                out.push('{');
                for (index, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    spell_whitespace(choices, out);
                    spell_string(name, choices, out);
                    spell_whitespace(choices, out);
                    out.push(':');
                    value.spell_into(choices, out);
                }
                spell_whitespace(choices, out);
                out.push('}');
            }
        }
        spell_whitespace(choices, out);
    }

    /// Returns another value, different in one place.
    pub(crate) fn mutate(&self, choices: &mut Choices) -> Json {
        match self {
            Json::Null => Json::Bool(false),
            Json::Bool(true) => Json::String("true".to_owned()),
            Json::Bool(false) => Json::Null,
            Json::Number { mantissa, exponent } => match choices.below(3) {
                0 if *mantissa != 0 => Json::Number { mantissa: -mantissa, exponent: *exponent },
                1 if *mantissa != 0 => Json::Number { mantissa: *mantissa, exponent: exponent + 1 },
                _ => number(mantissa + 1, *exponent),
            },
            Json::String(text) => Json::String(format!("{text}\0")),
            Json::Array(elements) => {
                let mut elements = elements.clone();
                match (elements.len(), choices.below(3)) {
                    (0, _) | (_, 0) => elements.push(Json::Null),
                    (_, 1) => drop(elements.pop()),
                    (length, _) => {
                        let index = choices.below(length);
                        elements[index] = elements[index].mutate(choices);
                    }
                }
                Json::Array(elements)
            }
            Json::Object(members) => {
                let mut members = members.clone();
                let names: Vec<String> = members.keys().cloned().collect();
                match (names.len(), choices.below(3)) {
                    (0, _) => drop(members.insert(String::new(), Json::Null)),
                    (length, choice) => {
                        let name = &names[choices.below(length)];
                        let value = members.remove(name).expect("the name was listed");
                        match choice {
                            0 => {}
                            // Longer than every existing name, hence a new one.
                            1 => drop(members.insert(names.concat() + "x", value)),
                            _ => drop(members.insert(name.clone(), value.mutate(choices))),
                        }
                    }
                }
                Json::Object(members)
            }
        }
    }

    /// Returns this value for `serde_json`, without going through a text.
    pub(crate) fn to_serde(&self) -> serde_json::Value {
        match self {
            Json::Null => serde_json::Value::Null,
            Json::Bool(value) => (*value).into(),
            Json::Number { mantissa, exponent } => {
                let double: f64 = format!("{mantissa}e{exponent}").parse().expect("a floating point literal");
                double.into()
            }
            Json::String(text) => text.as_str().into(),
            Json::Array(elements) => elements.iter().map(Json::to_serde).collect(),
            Json::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), value.to_serde())).collect()
            }
        }
    }
}

fn spell_whitespace(choices: &mut Choices, out: &mut String) {
    out.push_str(["", "", "", " ", "\t", "\n", "\r\n  "][choices.below(7)]);
}

fn spell_string(text: &str, choices: &mut Choices, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        let must_escape = matches!(c, '"' | '\\' | '\0'..='\u{1f}');
        if !must_escape && choices.below(3) > 0 {
            out.push(c);
            continue;
        }
        let short = "\"\\/\u{8}\u{c}\n\r\t".chars().zip("\"\\/bfnrt".chars()).find(|(full, _)| *full == c);
        match short {
            Some((_, letter)) if choices.below(2) == 0 => out.extend(['\\', letter]),
            Some(_) | None => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let upper = choices.below(2) == 0;
                    out.push_str(&if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
                }
            }
        }
    }
    out.push('"');
}

/// Pads the digits with zeros on both sides, puts the point anywhere, and compensates with the exponent.
fn spell_number(mantissa: i64, exponent: i32, choices: &mut Choices) -> String {
    let sign = if mantissa < 0 || (mantissa == 0 && choices.below(2) == 0) { "-" } else { "" };
    let trailing = choices.below(4);
    let digits = format!("{:0>8}{}", mantissa.unsigned_abs(), "0".repeat(trailing));
    let point = 1 + choices.below(digits.len());
    let (whole, fraction) = digits.split_at(point);
    let significant = whole.trim_start_matches('0');
    let whole = if significant.is_empty() { "0" } else { significant };
    let exponent = exponent - trailing as i32 + fraction.len() as i32;
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    if exponent == 0 && choices.below(2) == 0 {
        return format!("{sign}{whole}{fraction}");
    }
    let letter = ["e", "E"][choices.below(2)];
    let plus = if exponent >= 0 && choices.below(2) == 0 { "+" } else { "" };
    format!("{sign}{whole}{fraction}{letter}{plus}{exponent}")
}
