//! Second reader of JSON (RFC 8259), which keeps numbers as written and members in their order, and a writer that
//! respells a document.

use std::fmt::Write;

use crate::choices::Choices;

/// A JSON document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// Number as written.
    Number(String),
    String(String),
    Array(Vec<Json>),
    /// Members in the order of the text, with repeated names.
    Object(Vec<(String, Json)>),
}

/// Maximum depth, beyond that of any other reader.
const MAX_DEPTH: usize = 200;

/// Reads a whole text. `None` if it is not JSON, has half a surrogate pair, or is too deep.
pub(crate) fn read(text: &[u8]) -> Option<Json> {
    let text: Vec<char> = str::from_utf8(text).ok()?.chars().collect();
    let mut reader = Reader { text: &text, at: 0 };
    let value = reader.value(0)?;
    (reader.at == text.len()).then_some(value)
}

struct Reader<'a> {
    text: &'a [char],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn is_next(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Option<Json> {
        word.chars().all(|wanted| self.is_next(wanted)).then_some(value)
    }

    /// Reads a value, and the blanks around it.
    fn value(&mut self, depth: usize) -> Option<Json> {
        self.blank();
        let value = match self.peek()? {
            'n' => self.word("null", Json::Null),
            't' => self.word("true", Json::Bool(true)),
            'f' => self.word("false", Json::Bool(false)),
            '"' => self.string().map(Json::String),
            '[' => self.array(depth),
            '{' => self.object(depth),
            _ => self.number(),
        };
        self.blank();
        value
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        self.next();
        let mut elements = Vec::new();
        self.blank();
        if self.is_next(']') {
            return Some(Json::Array(elements));
        }
        (depth < MAX_DEPTH).then_some(())?;
        loop {
            elements.push(self.value(depth + 1)?);
            match self.next()? {
                ',' => {}
                ']' => return Some(Json::Array(elements)),
                _ => return None,
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.next();
        let mut members = Vec::new();
        self.blank();
        if self.is_next('}') {
            return Some(Json::Object(members));
        }
        (depth < MAX_DEPTH).then_some(())?;
        loop {
            self.blank();
            let name = self.string()?;
            self.blank();
            self.is_next(':').then_some(())?;
            members.push((name, self.value(depth + 1)?));
            match self.next()? {
                ',' => {}
                '}' => return Some(Json::Object(members)),
                _ => return None,
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        self.is_next('"').then_some(())?;
        let mut units = Vec::new();
        loop {
            match self.next()? {
                '"' => return String::from_utf16(&units).ok(),
                '\\' => match self.next()? {
                    'u' => units.push(self.unit()?),
                    'b' => units.push(8),
                    't' => units.push(9),
                    'n' => units.push(10),
                    'f' => units.push(12),
                    'r' => units.push(13),
                    same @ ('"' | '\\' | '/') => units.push(same as u16),
                    _ => return None,
                },
                control if control < ' ' => return None,
                plain => units.extend_from_slice(plain.encode_utf16(&mut [0; 2])),
            }
        }
    }

    fn unit(&mut self) -> Option<u16> {
        let mut unit = 0;
        for _ in 0..4 {
            unit = unit * 16 + u16::try_from(self.next()?.to_digit(16)?).ok()?;
        }
        Some(unit)
    }

    fn number(&mut self) -> Option<Json> {
        let start = self.at;
        self.is_next('-');
        if !self.is_next('0') {
            self.digits()?;
        }
        if self.is_next('.') {
            self.digits()?;
        }
        if self.is_next('e') || self.is_next('E') {
            let _sign = self.is_next('+') || self.is_next('-');
            self.digits()?;
        }
        Some(Json::Number(self.text[start..self.at].iter().collect()))
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

impl Json {
    /// Returns the depth of nested arrays and objects.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
            Json::Array(elements) => 1 + elements.iter().map(Json::depth).max().unwrap_or(0),
            Json::Object(members) => 1 + members.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
        }
    }

    /// Returns true if any object has two members of one name.
    pub(crate) fn repeats(&self) -> bool {
        match self {
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
            Json::Array(elements) => elements.iter().any(Json::repeats),
            Json::Object(members) => {
                let mut names: Vec<&String> = members.iter().map(|(name, _)| name).collect();
                names.sort();
                names.windows(2).any(|pair| pair[0] == pair[1])
                    || members.iter().any(|(_, value)| value.repeats())
            }
        }
    }

    /// Returns true if `holds` is true for every number.
    pub(crate) fn all_numbers(&self, holds: fn(&str) -> bool) -> bool {
        match self {
            Json::Null | Json::Bool(_) | Json::String(_) => true,
            Json::Number(text) => holds(text),
            Json::Array(elements) => elements.iter().all(|element| element.all_numbers(holds)),
            Json::Object(members) => members.iter().all(|(_, value)| value.all_numbers(holds)),
        }
    }

    /// Writes the same document in another spelling.
    pub(crate) fn respell(&self, choices: &mut Choices) -> String {
        let mut out = String::new();
        self.write(choices, &mut out);
        out
    }

    fn write(&self, choices: &mut Choices, out: &mut String) {
        let blank = |choices: &mut Choices| ["", "", " ", "\n", "\t\r"][choices.below(5)];
        out.push_str(blank(choices));
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(text) => out.push_str(&respell_number(text, choices)),
            Json::String(text) => write_string(text, choices, out),
            Json::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    element.write(choices, out);
                }
                out.push(']');
            }
            Json::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                for last in (1..members.len()).rev() {
                    members.swap(last, choices.below(last + 1));
                }
                out.push('{');
                for (index, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    out.push_str(blank(choices));
                    write_string(name, choices, out);
                    out.push_str(blank(choices));
                    out.push(':');
                    value.write(choices, out);
                }
                out.push_str(blank(choices));
                out.push('}');
            }
        }
        out.push_str(blank(choices));
    }

    /// Changes the document in one place.
    pub(crate) fn alter(&mut self, choices: &mut Choices) {
        match self {
            Json::Null => *self = Json::Bool(false),
            Json::Bool(value) => *self = if *value { Json::Null } else { Json::Bool(true) },
            Json::Number(text) => *self = Json::Number(alter_number(text)),
            Json::String(text) => match text.pop() {
                Some('x') => text.push('X'),
                Some(_) if choices.once_in(2) => {}
                Some(_) | None => text.push('x'),
            },
            Json::Array(elements) if elements.is_empty() => elements.push(Json::Null),
            Json::Array(elements) => {
                let index = choices.below(elements.len());
                if choices.once_in(4) {
                    elements.remove(index);
                } else {
                    elements[index].alter(choices);
                }
            }
            Json::Object(members) if members.is_empty() => members.push((String::new(), Json::Null)),
            Json::Object(members) => {
                let index = choices.below(members.len());
                match choices.below(4) {
                    0 => drop(members.remove(index)),
                    // Longer than every existing name.
                    1 => {
                        members[index].0 =
                            members.iter().map(|(name, _)| name.as_str()).collect::<String>() + "x";
                    }
                    _ => members[index].1.alter(choices),
                }
            }
        }
    }
}

/// Splits a number into its sign, its digits without zeros at the ends, and the decimal exponent of the last digit.
pub(crate) fn value(text: &str) -> (bool, String, String) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) =
        mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa.trim_start_matches('-'), ""));
    let digits = format!("{whole}{fraction}");
    let short = digits.trim_end_matches('0');
    let significant = short.trim_start_matches('0');
    if significant.is_empty() {
        return (false, String::new(), "0".to_owned());
    }
    let shift = (digits.len() - short.len()) as i64 - fraction.len() as i64;
    (mantissa.starts_with('-'), significant.to_owned(), add(exponent, shift))
}

/// Adds a small integer to one of any length: digit by digit, each with its sign, and only then carries over.
fn add(text: &str, small: i64) -> String {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let mut places: Vec<i64> = text
        .trim_start_matches(['+', '-'])
        .bytes()
        .rev()
        .map(|digit| sign * i64::from(digit - b'0'))
        .collect();
    places[0] += small;
    if carry(&mut places) < 0 {
        places.iter_mut().for_each(|place| *place = -*place);
        carry(&mut places);
        return format!("-{}", written(&places));
    }
    written(&places)
}

/// Carries over so that every place but the last is a digit, and returns the last one.
fn carry(places: &mut Vec<i64>) -> i64 {
    let mut over = 0;
    for place in &mut *places {
        let sum = *place + over;
        (*place, over) = (sum.rem_euclid(10), sum.div_euclid(10));
    }
    places.push(over);
    over
}

fn written(places: &[i64]) -> String {
    let all: String = places.iter().rev().map(i64::to_string).collect();
    let digits = all.trim_start_matches('0');
    if digits.is_empty() { "0".to_owned() } else { digits.to_owned() }
}

/// Splits a number like `value`, with an exponent as an integer. `None` if that is too large.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (negative, digits, power) = value(text);
    Some((negative, digits, i64::from(power.parse::<i32>().ok()?)))
}

/// Returns true if a double surely holds this number: 15 digits, and far from its limits.
pub(crate) fn is_modest(text: &str) -> bool {
    decimal(text).is_some_and(|(_, digits, power)| digits.len() <= 15 && (-280..=280).contains(&power))
}

/// Respells a number with its point elsewhere and zeros around it, unless its exponent is too large.
fn respell_number(text: &str, choices: &mut Choices) -> String {
    let Some((negative, digits, power)) = decimal(text) else { return text.to_owned() };
    let sign = if negative || (digits.is_empty() && choices.once_in(2)) { "-" } else { "" };
    let zeros = choices.below(3);
    let digits = format!("{digits}{}", "0".repeat(zeros));
    let (whole, fraction) = digits.split_at(choices.below(digits.len() + 1));
    let power = power - zeros as i64 + fraction.len() as i64;
    let whole = if whole.is_empty() {
        "0"
    } else if whole.starts_with('0') {
        return text.to_owned();
    } else {
        whole
    };
    let mut out = format!("{sign}{whole}");
    if !fraction.is_empty() {
        let _ = write!(out, ".{fraction}");
    }
    if power != 0 || choices.once_in(3) {
        let _ = write!(out, "{}{power}", ["e", "E"][choices.below(2)]);
    }
    out
}

fn write_string(text: &str, choices: &mut Choices, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        if c >= ' ' && c != '"' && c != '\\' && !choices.once_in(4) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ =
                if choices.once_in(2) { write!(out, "\\u{unit:04x}") } else { write!(out, "\\u{unit:04X}") };
        }
    }
    out.push('"');
}

/// Changes a number: its last significant digit, one further.
fn alter_number(text: &str) -> String {
    let mantissa = text.find(['e', 'E']).unwrap_or(text.len());
    let counts = |(_, c): &(usize, char)| c.is_ascii_digit();
    let Some((at, digit)) = text[..mantissa].char_indices().rfind(counts) else { return "1".to_owned() };
    let next = if digit == '9' { '8' } else { char::from(digit as u8 + 1) };
    format!("{}{next}{}", &text[..at], &text[at + 1..])
}
