//! Lines of a page in the text format of Prometheus. Only metrics of a caller's choice are read.

/// Page with a line that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedPage {
    /// Number of the line, from 1 on.
    pub(super) line: usize,
}

/// Line with the value of one metric.
#[derive(Debug, PartialEq)]
pub(super) struct PageLine<'a> {
    pub(super) name: &'a str,
    labels: Vec<(&'a str, String)>,
    /// Value, which is a finite number.
    pub(super) value: f64,
}

impl PageLine<'_> {
    /// Returns true if the line has this label with this value.
    pub(super) fn has_label(&self, name: &str, value: &str) -> bool {
        self.labels.iter().any(|(own, of)| *own == name && of == value)
    }
}

/// Returns the lines of the wanted metrics. Comments, and lines of other metrics, are skipped.
pub(super) fn lines<'a>(
    page: &'a str,
    is_wanted: impl Fn(&str) -> bool,
) -> impl Iterator<Item = Result<PageLine<'a>, MalformedPage>> {
    page.lines().enumerate().filter_map(move |(index, line)| {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        is_wanted(name).then(|| read(name, rest).ok_or(MalformedPage { line: index + 1 }))
    })
}

/// Reads the rest of a line, after the name: labels in braces, a value, and perhaps the time of the value.
fn read<'a>(name: &'a str, rest: &'a str) -> Option<PageLine<'a>> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.strip_prefix(' ')?.split(' ');
    let value: f64 = words.next()?.parse().ok()?;
    let is_complete = words.next().is_none_or(|time| time.parse::<i64>().is_ok()) && words.next().is_none();
    (is_complete && value.is_finite()).then_some(PageLine { name, labels, value })
}

/// Reads labels up to the closing brace, and returns the text after it.
fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        let (value, after) = quoted(after)?;
        labels.push((name, value));
        rest = match after.strip_prefix(',') {
            Some(after) => after,
            None if after.starts_with('}') => after,
            None => return None,
        };
    }
}

/// Reads a label's value up to its closing quote, and returns the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), text.char_indices());
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return text.get(index + 1..).map(|rest| (value, rest)),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped @ ('"' | '\\') => escaped,
                _ => return None,
            }),
            character => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Option<PageLine<'_>> {
        let found: Result<Vec<_>, _> = lines(text, |name| name == "hits").collect();
        found.ok()?.pop()
    }

    #[test]
    fn labels_and_values_are_read_as_prometheus_writes_them() {
        for (text, value) in
            [("hits 7", 7.0), ("hits{} 1e3", 1000.0), ("hits{a=\"b\"} 0.5 1700000000000", 0.5)]
        {
            assert_eq!(one(text).map(|line| line.value), Some(value), "{text}");
        }
        let line = one(r#"hits{a="}, b=\"1\"",path="C:\\new\nline",} 2"#).expect("it can be read");
        assert!(line.has_label("a", "}, b=\"1\""), "{line:?}");
        assert!(line.has_label("path", "C:\\new\nline"), "{line:?}");
        assert!(!line.has_label("b", "1") && !line.has_label("a", ""), "{line:?}");
    }

    #[test]
    fn comments_and_other_metrics_are_skipped_unread() {
        for text in ["", "# TYPE hits counter", "hits_more 7", "hit 7", "misses{ nonsense"] {
            assert_eq!(lines(text, |name| name == "hits").count(), 0, "{text}");
        }
    }

    #[test]
    fn a_malformed_line_is_refused_with_its_number() {
        for text in [
            "hits",
            "hits ",
            "hits many",
            "hits NaN",
            "hits +Inf",
            "hits 1 now",
            "hits 1 2 3",
            "hits{a=\"b\" 1",
            "hits{a=\"b 1",
            "hits{a=b} 1",
            "hits{=\"b\"} 1",
            "hits{a=\"b\"c=\"d\"} 1",
            "hits{a=\"\\x\"} 1",
            "hits{a=\"b\"}1",
        ] {
            let page = format!("# HELP hits Hits.\nhits 1\n{text}");
            let found: Result<Vec<_>, _> = lines(&page, |name| name == "hits").collect();
            assert_eq!(found, Err(MalformedPage { line: 3 }), "{text}");
        }
    }
}
