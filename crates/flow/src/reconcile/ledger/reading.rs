//! Parses the bytes of a ledger: selects columns, filters entries, and refuses unreadable input.

use semel_core::json::{self as core_json, FoundValue};
pub use semel_core::ledger::{Condition, Format, LedgerColumns};
use semel_core::{JsonPointer, Timestamp};

use super::compare::same;
use super::csv::Csv;
use super::entries::{Age, Ages, Ledger};
use super::json::{Lines, ListSplitter};
use super::unreadable::UnreadableLedger;

/// UTF-8 byte order mark, which some programs write at the start of a file.
const BYTE_ORDER_MARK: &[u8; 3] = b"\xef\xbb\xbf";

/// Returns every name, in the order in which [`LedgerReader`] wants the values.
fn names(columns: &LedgerColumns) -> Vec<&str> {
    let conditions = columns.filter.iter().map(|condition| &condition.name);
    let names =
        std::iter::once(&columns.reference).chain(&columns.compare).chain(&columns.time).chain(conditions);
    names.map(String::as_str).collect()
}

/// Parser of a ledger. Feed it the whole input, in order and in pieces of any size.
#[derive(Debug)]
pub struct LedgerReader {
    source: FormatReader,
    taker: Taker,
    /// Number of matched bytes of the byte order mark; `None` once the text has begun.
    mark: Option<usize>,
}

#[derive(Debug)]
enum FormatReader {
    /// CSV, with the positions of the used columns once the header is read.
    Csv {
        csv: Csv,
        header: Option<Header>,
    },
    Ndjson {
        lines: Lines,
        pointers: Vec<JsonPointer>,
    },
    Json {
        list: ListSplitter,
        pointers: Vec<JsonPointer>,
    },
}

#[derive(Debug)]
struct Header {
    width: usize,
    places: Vec<usize>,
}

/// Converts values into entries.
#[derive(Debug)]
struct Taker {
    columns: LedgerColumns,
    ages: Ages,
    ledger: Ledger,
    /// True for each used column that any entry has had.
    met: Vec<bool>,
}

impl LedgerReader {
    /// Creates a parser.
    ///
    /// # Errors
    /// If a name is not valid in this format.
    pub fn new(
        format: Format,
        columns: &LedgerColumns,
        ages: Ages,
    ) -> Result<LedgerReader, UnreadableLedger> {
        let names = names(columns);
        let pointers = || names.iter().map(|name| pointer(name)).collect::<Result<Vec<_>, _>>();
        let source = match format {
            Format::Csv => FormatReader::Csv { csv: Csv::new(), header: None },
            Format::Ndjson => FormatReader::Ndjson { lines: Lines::new(), pointers: pointers()? },
            Format::Json => FormatReader::Json { list: ListSplitter::new(), pointers: pointers()? },
        };
        let taker = Taker {
            columns: columns.clone(),
            ages,
            ledger: Ledger::new(columns.compare.len()),
            met: vec![false; names.len()],
        };
        Ok(LedgerReader { source, taker, mark: Some(0) })
    }

    /// Parses the next piece.
    ///
    /// # Errors
    /// If the input cannot be read: no entry is skipped.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), UnreadableLedger> {
        let bytes = self.after_mark(bytes)?;
        let taker = &mut self.taker;
        match &mut self.source {
            FormatReader::Csv { csv, header } => {
                csv.feed(bytes, &mut |line, fields| taker.fields(header, line, fields))
            }
            FormatReader::Ndjson { lines, pointers } => {
                lines.feed(bytes, &mut |line, text| taker.object(pointers, line, text))
            }
            FormatReader::Json { list, pointers } => {
                list.feed(bytes, &mut |line, text| taker.object(pointers, line, text))
            }
        }
    }

    /// Ends the input, and returns the ledger.
    ///
    /// # Errors
    /// If the input cannot be read, or is cut off; if there is no header; or if no entry has a used member: its name is
    /// wrong.
    pub fn finish(mut self) -> Result<Ledger, UnreadableLedger> {
        let taker = &mut self.taker;
        match &mut self.source {
            FormatReader::Csv { csv, header } => {
                csv.finish(&mut |line, fields| taker.fields(header, line, fields))?;
                if header.is_none() {
                    let why = "there is no header: the first line of CSV names the columns";
                    return Err(UnreadableLedger::everywhere(why.to_owned()));
                }
            }
            FormatReader::Ndjson { lines, pointers } => {
                lines.finish(&mut |line, text| taker.object(pointers, line, text))?;
            }
            FormatReader::Json { list, .. } => list.finish()?,
        }
        self.taker.finish()
    }

    fn after_mark<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], UnreadableLedger> {
        let Some(met) = self.mark else { return Ok(bytes) };
        let mut met = met;
        for (index, byte) in bytes.iter().enumerate() {
            if met == BYTE_ORDER_MARK.len() || *byte != BYTE_ORDER_MARK[met] {
                self.mark = None;
                let is_text = matches!(met, 0 | 3);
                return if is_text { Ok(&bytes[index..]) } else { Err(UnreadableLedger::at(1, "not UTF-8")) };
            }
            met += 1;
        }
        self.mark = Some(met);
        Ok(&[])
    }
}

/// Returns the JSON Pointer for a name.
fn pointer(name: &str) -> Result<JsonPointer, UnreadableLedger> {
    let escaped = || format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    let text = if name.starts_with('/') { name.to_owned() } else { escaped() };
    JsonPointer::parse(&text).map_err(|error| UnreadableLedger::everywhere(format!("{name:?}: {error}")))
}

impl Header {
    fn read(line: u32, columns: &[&str], names: &[&str]) -> Result<Header, UnreadableLedger> {
        let place = |name: &&str| {
            let mut places = (0..columns.len()).filter(|place| columns[*place] == *name);
            match (places.next(), places.next()) {
                (Some(place), None) => Ok(place),
                (Some(_), Some(_)) => Err(UnreadableLedger::at(
                    line,
                    format!("two columns are called {name:?}: which one counts?"),
                )),
                (None, _) => {
                    let shown: Vec<_> = columns.iter().take(20).map(|column| format!("{column:?}")).collect();
                    let why = format!("there is no column {name:?}; there are {}", shown.join(", "));
                    Err(UnreadableLedger::at(line, why.chars().take(400).collect::<String>()))
                }
            }
        };
        let places = names.iter().map(place).collect::<Result<_, _>>()?;
        Ok(Header { width: columns.len(), places })
    }
}

impl Taker {
    fn fields(
        &mut self,
        header: &mut Option<Header>,
        line: u32,
        fields: &[&str],
    ) -> Result<(), UnreadableLedger> {
        let Some(header) = header else {
            *header = Some(Header::read(line, fields, &names(&self.columns))?);
            self.met.fill(true);
            return Ok(());
        };
        if fields.len() != header.width {
            let why = format!("the header has {} fields, and this has {}", header.width, fields.len());
            return Err(UnreadableLedger::at(line, why));
        }
        let values: Vec<&str> = header.places.iter().map(|place| fields[*place]).collect();
        self.take(line, &values)
    }

    fn object(&mut self, pointers: &[JsonPointer], line: u32, text: &[u8]) -> Result<(), UnreadableLedger> {
        if !text.starts_with(b"{") {
            return Err(UnreadableLedger::at(line, "expected an object, which begins with `{`"));
        }
        let found =
            core_json::find(text, pointers).map_err(|error| UnreadableLedger::at(line, error.to_string()))?;
        for (met, found) in self.met.iter_mut().zip(&found) {
            *met |= *found != FoundValue::Nothing;
        }
        if let Some(nested) = found.iter().position(|found| *found == FoundValue::Nested) {
            let why = format!("{:?} is no text and no number, but has members", names(&self.columns)[nested]);
            return Err(UnreadableLedger::at(line, why));
        }
        let text = |found| if let FoundValue::Text(text) = found { text } else { String::new() };
        let values: Vec<String> = found.into_iter().map(text).collect();
        self.take(line, &values.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Takes an entry with these values, in the order of [`LedgerColumns::names`].
    fn take(&mut self, line: u32, values: &[&str]) -> Result<(), UnreadableLedger> {
        let LedgerColumns { compare, time, filter, strip_suffix, .. } = &self.columns;
        let (reference, rest) = values.split_first().unwrap_or((&"", &[]));
        let (compared, rest) = rest.split_at(compare.len());
        let (times, filtered) = rest.split_at(time.iter().len());
        if !counts(filter, filtered) {
            self.ledger.left_out += 1;
            return Ok(());
        }
        let age = match times.first() {
            None => Age::Due,
            Some(text) => self.ages.of(parse_time(text).map_err(|why| UnreadableLedger::at(line, why))?),
        };
        let suffix = strip_suffix.as_ref().and_then(|suffix| reference.find(suffix.as_str()));
        let reference = &reference[..suffix.unwrap_or(reference.len())];
        self.ledger.add(line, age, reference, compared).map_err(|why| UnreadableLedger::at(line, why))
    }

    fn finish(self) -> Result<Ledger, UnreadableLedger> {
        let is_empty = self.ledger.is_empty() && self.ledger.left_out == 0;
        if let Some(missing) = self.met.iter().position(|met| !met && !is_empty) {
            let why = format!("no entry has a member {:?}: is it called so?", names(&self.columns)[missing]);
            return Err(UnreadableLedger::everywhere(why));
        }
        Ok(self.ledger)
    }
}

/// Returns true if each column in the filter has one of its values.
fn counts(filter: &[Condition], values: &[&str]) -> bool {
    let holds = |condition: &Condition, value: &str| same(&condition.value, value);
    filter.iter().all(|condition| {
        let mut same_column = filter.iter().zip(values).filter(|(other, _)| other.name == condition.name);
        same_column.any(|(other, value)| holds(other, value))
    })
}

/// Parses a time of RFC 3339, or seconds since 1970.
fn parse_time(text: &str) -> Result<Timestamp, String> {
    /// Upper bound of seconds: the year 5138. As milliseconds it is the year 1973.
    const MOST_SECONDS: i64 = 100_000_000_000;
    let expected = "expected one of RFC 3339, such as 2026-11-15T12:33:01Z, or seconds since 1970";
    if let Some(time) = Timestamp::from_rfc3339(text) {
        return Ok(time);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = whole.parse::<i64>().ok().filter(|_| is_digits(whole) && is_digits(fraction));
    let shown: String = text.chars().take(40).collect();
    match seconds {
        Some(seconds) if seconds < MOST_SECONDS => {
            let thousandths: i64 = format!("{fraction:0<3}")[..3].parse().unwrap_or(0);
            Ok(Timestamp::from_millis(seconds * 1000 + thousandths))
        }
        Some(_) => Err(format!("{shown:?} is no time: {expected}, and these are milliseconds, it seems")),
        None => Err(format!("{shown:?} is no time: {expected}")),
    }
}
