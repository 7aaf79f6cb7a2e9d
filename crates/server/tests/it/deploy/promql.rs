//! The names in a query of Prometheus: its metrics with their matchers, and the labels that it groups by.
//!
//! promtool checks the syntax of queries; this only finds names, so it knows no functions: a word before a parenthesis, or
//! before `by`, is one.

use std::collections::BTreeSet;

/// Words before a list of labels.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words that are neither functions nor metrics.
const OPERATORS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];

/// The names in one query.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PromQuery {
    pub(super) selectors: Vec<MetricSelector>,
    /// Labels of `by`, `on` and the like.
    pub(super) grouping: BTreeSet<String>,
}

/// A metric in a query.
#[derive(Debug, PartialEq)]
pub(super) struct MetricSelector {
    pub(super) name: String,
    pub(super) matchers: Vec<LabelMatcher>,
}

/// A condition on a label of a metric.
#[derive(Debug, PartialEq)]
pub(super) struct LabelMatcher {
    pub(super) label: String,
    /// One of `=`, `!=`, `=~`, `!~`.
    pub(super) operator: String,
    pub(super) value: String,
}

#[derive(Debug, PartialEq)]
enum PromToken {
    Word(String),
    Text(String),
    Sign(char),
    /// A number, a duration, or a variable of Grafana.
    Number,
}

/// Returns the names in a query.
pub(super) fn read(query: &str) -> PromQuery {
    let mut tokens = tokens(query).into_iter().peekable();
    let mut found = PromQuery::default();
    while let Some(token) = tokens.next() {
        let PromToken::Word(word) = token else { continue };
        let next = tokens.peek();
        let opens = next == Some(&PromToken::Sign('('));
        if GROUPING.contains(&&*word) {
            if opens {
                let inside = tokens.by_ref().take_while(|token| *token != PromToken::Sign(')'));
                found.grouping.extend(inside.filter_map(PromToken::word));
            }
        } else if opens || OPERATORS.contains(&&*word) || next.is_some_and(PromToken::groups) {
            // An operator, a function, or an aggregation with its labels in front.
        } else {
            let has_matchers = next == Some(&PromToken::Sign('{'));
            let matchers = if has_matchers { matchers(&mut tokens) } else { Vec::new() };
            found.selectors.push(MetricSelector { name: word, matchers });
        }
    }
    found
}

/// Reads matchers up to the brace that closes them.
fn matchers(tokens: &mut impl Iterator<Item = PromToken>) -> Vec<LabelMatcher> {
    let mut found = Vec::new();
    let (mut label, mut operator) = (String::new(), String::new());
    for token in tokens {
        match token {
            PromToken::Sign('}') => break,
            PromToken::Sign('{' | ',') => {}
            PromToken::Sign(sign) => operator.push(sign),
            PromToken::Word(word) => label = word,
            PromToken::Text(value) => {
                let (label, operator) = (std::mem::take(&mut label), std::mem::take(&mut operator));
                found.push(LabelMatcher { label, operator, value });
            }
            PromToken::Number => {}
        }
    }
    found
}

impl PromToken {
    fn word(self) -> Option<String> {
        match self {
            PromToken::Word(word) => Some(word),
            PromToken::Text(_) | PromToken::Sign(_) | PromToken::Number => None,
        }
    }

    fn groups(&self) -> bool {
        matches!(self, PromToken::Word(word) if word == "by" || word == "without")
    }
}

fn tokens(query: &str) -> Vec<PromToken> {
    let is_of_word = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let mut found = Vec::new();
    let mut rest = query.chars().peekable();
    while let Some(c) = rest.next() {
        let token = match c {
            c if c.is_whitespace() => continue,
            '"' => {
                let mut text = String::new();
                while let Some(c) = rest.next().filter(|c| *c != '"') {
                    text.push(if c == '\\' { rest.next().unwrap_or(c) } else { c });
                }
                PromToken::Text(text)
            }
            '$' | '0'..='9' => {
                while rest.next_if(|c| is_of_word(c) || *c == '.').is_some() {}
                PromToken::Number
            }
            c if is_of_word(&c) => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(is_of_word) {
                    word.push(c);
                }
                PromToken::Word(word)
            }
            sign => PromToken::Sign(sign),
        };
        found.push(token);
    }
    found
}

/// Returns the names of the metrics in a query.
fn names(query: &str) -> Vec<String> {
    read(query).selectors.into_iter().map(|selector| selector.name).collect()
}

#[test]
fn metrics_are_found_among_functions_operators_and_durations() {
    let query = "histogram_quantile(0.99, sum by (job, le) (rate(a_bucket{job=\"x\"}[5m]))) > 1e3 and on (job) \
                 sum without (le) (b[$__range]) unless time() - max(c > 0) > 60 or absent(d) and e:f:rate5m offset 15m";
    assert_eq!(names(query), ["a_bucket", "b", "c", "d", "e:f:rate5m"]);
    assert_eq!(read(query).grouping.into_iter().collect::<Vec<_>>(), ["job", "le"]);
}

#[test]
fn group_left_without_labels_hides_no_metric() {
    let query = "a / on (job) group_left sum by (operation) (b)";
    assert_eq!(names(query), ["a", "b"]);
    assert_eq!(read(query).grouping.into_iter().collect::<Vec<_>>(), ["job", "operation"]);
}

#[test]
fn matchers_are_read_with_their_operators() {
    let query = read(r#"a{job=~"x|y", code!="b\"}c",le="+Inf"} + b{}"#);
    let matchers = query.selectors[0].matchers.iter();
    let matchers: Vec<_> =
        matchers.map(|matcher| (&*matcher.label, &*matcher.operator, &*matcher.value)).collect();
    assert_eq!(matchers, [("job", "=~", "x|y"), ("code", "!=", "b\"}c"), ("le", "=", "+Inf")]);
    assert_eq!(query.selectors[1], MetricSelector { name: "b".to_owned(), matchers: Vec::new() });
}
