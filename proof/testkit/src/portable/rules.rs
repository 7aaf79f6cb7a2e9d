//! Rules of the portable subset, token by token: everything that is not listed is outside. `judge` calls them.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{Token, statements};
use crate::postgres::{Database, Error};

/// Keywords of the subset. What PostgreSQL's relatives refuse or treat in their own way is not among them.
const KEYWORDS: [&str; 57] = [
    "all",
    "and",
    "as",
    "asc",
    "begin",
    "between",
    "by",
    "case",
    "coalesce",
    "commit",
    "committed",
    "conflict",
    "delete",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "epoch",
    "except",
    "exists",
    "extract",
    "false",
    "from",
    "group",
    "having",
    "in",
    "inner",
    "insert",
    "into",
    "is",
    "isolation",
    "join",
    "left",
    "level",
    "like",
    "limit",
    "local",
    "not",
    "nothing",
    "null",
    "on",
    "or",
    "order",
    "outer",
    "read",
    "returning",
    "rollback",
    "select",
    "set",
    "then",
    "true",
    "union",
    "update",
    "values",
    "when",
    "where",
];
/// Keywords that stand before a parenthesis and call nothing.
const BEFORE_PARENTHESIS: [&str; 34] = [
    "all",
    "and",
    "as",
    "by",
    "case",
    "conflict",
    "distinct",
    "else",
    "except",
    "exists",
    "from",
    "having",
    "in",
    "into",
    "join",
    "lateral",
    "left",
    "limit",
    "materialized",
    "not",
    "nothing",
    "on",
    "or",
    "returning",
    "select",
    "set",
    "then",
    "union",
    "update",
    "using",
    "values",
    "when",
    "where",
    "any",
];
const FUNCTIONS: [&str; 8] = ["coalesce", "count", "extract", "length", "max", "min", "now", "sum"];
const TYPES: [&str; 3] = ["bigint", "bytea", "text"];
/// Words of the schema's statements.
const SCHEMA_WORDS: [&str; 19] = [
    "bigint",
    "boolean",
    "bytea",
    "create",
    "default",
    "false",
    "gen_random_uuid",
    "if",
    "index",
    "key",
    "not",
    "null",
    "on",
    "primary",
    "table",
    "text",
    "unique",
    "uuid",
    "exists",
];

/// Names of the tables and columns, from the database.
#[derive(Default)]
pub struct Names(BTreeSet<String>);

impl Names {
    /// Returns the names of these pairs of a table and a column.
    pub fn of<T: Into<String>>(columns: impl IntoIterator<Item = (T, T)>) -> Names {
        Names(columns.into_iter().flat_map(|(table, column)| [table.into(), column.into()]).collect())
    }

    /// Returns the names of Semel's tables in a migrated database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn in_database(database: &Database) -> Result<Names, Error> {
        let columns = database.sql(
            "SELECT table_name || ' ' || column_name FROM information_schema.columns WHERE table_name LIKE 'semel_%'",
        )?;
        Ok(Names::of(columns.lines().filter_map(|line| line.split_once(' '))))
    }
}

/// Returns the departures of a statement, or of each statement of a script, from the subset.
pub fn outside(sql: &str, names: &Names) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for tokens in statements(sql) {
        match &tokens[0] {
            Token::Word(word) => match word.as_str() {
                "create" => found.extend(of_schema(&tokens)),
                "select" | "insert" | "update" | "delete" => {
                    found.extend(of_words(&tokens, names));
                    found.extend(of_shape(&tokens));
                }
                "with" => {
                    found.insert("with".to_owned());
                    found.extend(of_words(&tokens, names));
                    found.extend(of_shape(&tokens));
                }
                "begin" | "commit" | "rollback" if tokens.len() == 1 => {}
                "begin" if tokens[1].is("isolation") && tokens.len() == 5 => {}
                other => drop(found.insert(format!("statement {other}"))),
            },
            Token::Value | Token::Symbol(_) => drop(found.insert("not a statement".to_owned())),
        }
    }
    found
}

/// Departures of the words: keywords, functions, types, names.
fn of_words(tokens: &[Token], names: &Names) -> Vec<String> {
    let own = own_names(tokens);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.is_symbol("[") {
            found.push("array".to_owned());
        }
        let Token::Word(word) = token else { continue };
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        let calls = tokens.get(at + 1).is_some_and(|next| next.is_symbol("("));
        let is_name = names.0.contains(word) || own.contains_key(word);
        let word = word.as_str();
        if before.is_some_and(|before| before.is_symbol("::")) {
            if !TYPES.contains(&word) {
                found.push(format!("type {word}"));
            }
        } else if matches!(word, "any" | "array") {
            found.push("array".to_owned());
        } else if matches!(word, "recursive" | "materialized" | "lateral" | "ordinality" | "collate" | "over")
        {
            found.push(word.to_owned());
        } else if word == "for" {
            found.push("row lock".to_owned());
        } else if matches!(word, "of" | "skip" | "locked") && is_after_for(tokens, at) {
            if word == "skip" {
                found.push("skip locked".to_owned());
            }
        } else if calls && !BEFORE_PARENTHESIS.contains(&word) {
            let is_listed = FUNCTIONS.contains(&word) || word == "filter";
            if !is_listed && !is_table_or_alias(tokens, at, is_name) {
                found.push(format!("function {word}"));
            }
        } else if word == "ctid" || word == "xmin" || (!KEYWORDS.contains(&word) && !is_name) {
            match word {
                // Judged with their statements.
                "with" | "using" | "offset" | "cross" | "excluded" => {}
                word => found.push(format!("word {word}")),
            }
        }
    }
    found
}

/// Returns true for the rest of `FOR UPDATE OF … SKIP LOCKED`.
fn is_after_for(tokens: &[Token], at: usize) -> bool {
    tokens[at.saturating_sub(5)..at].iter().any(|token| token.is("for"))
}

/// Returns true for a name with a list of columns: `INSERT INTO t (…)`, `AS i (…)`, `WITH own(…)`.
fn is_table_or_alias(tokens: &[Token], at: usize, is_name: bool) -> bool {
    let before = at.checked_sub(1).and_then(|at| tokens.get(at));
    is_name
        && before.is_some_and(|before| ["into", "as", "with", "recursive"].iter().any(|word| before.is(word)))
}

/// Returns the names that the statement gives: aliases, their columns, and parts of `WITH`.
fn own_names(tokens: &[Token]) -> BTreeMap<String, ()> {
    let mut own = BTreeMap::new();
    for at in 0..tokens.len() {
        let Token::Word(word) = &tokens[at] else { continue };
        let follows = |offset: usize, symbol: &str| {
            tokens.get(at + offset).is_some_and(|token| token.is_symbol(symbol))
        };
        let next = tokens.get(at + 1);
        // `AS name`, `AS name (columns)`.
        let is_alias = at > 0 && tokens[at - 1].is("as") && !matches!(word.as_str(), "materialized");
        // `name AS (`, `name AS MATERIALIZED (`, `name(columns) AS (`.
        let is_part = next.is_some_and(|next| next.is("as"))
            && (follows(2, "(") || tokens.get(at + 2).is_some_and(|token| token.is("materialized")));
        let is_recursive = at > 0 && tokens[at - 1].is("recursive");
        if is_alias || is_part || is_recursive {
            own.insert(word.clone(), ());
            if (is_alias || is_recursive) && follows(1, "(") {
                let columns = tokens[at + 2..].iter().take_while(|token| !token.is_symbol(")"));
                own.extend(columns.filter_map(|token| match token {
                    Token::Word(name) => Some((name.clone(), ())),
                    Token::Value | Token::Symbol(_) => None,
                }));
            }
        }
    }
    own
}

/// Departures of the shape: conflict targets, joined and unguarded writes.
fn of_shape(tokens: &[Token]) -> Vec<String> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let is = |offset: usize, word: &str| tokens.get(at + offset).is_some_and(|token| token.is(word));
        if is(0, "on") && is(1, "conflict") {
            if !is(2, "do") {
                found.push("conflict target".to_owned());
            }
            let end = tokens[at..].iter().position(|token| token.is("do")).unwrap_or(0);
            if is(end + 1, "update") {
                found.push("conflict update".to_owned());
            }
        }
        let is_update = is(0, "update") && !is_part_of_another(tokens, at);
        if is_update || (is(0, "delete") && is(1, "from")) {
            found.extend(of_write(&tokens[at..], is_update));
        }
    }
    found
}

/// Returns true for `FOR UPDATE` and `DO UPDATE`.
fn is_part_of_another(tokens: &[Token], at: usize) -> bool {
    at > 0 && (tokens[at - 1].is("for") || tokens[at - 1].is("do"))
}

/// Departures of an UPDATE or a DELETE, which begins here.
fn of_write(tokens: &[Token], is_update: bool) -> Vec<String> {
    let verb = if is_update { "update" } else { "delete" };
    let mut depth = 0_usize;
    let mut flat = Vec::new();
    for token in tokens {
        match token {
            token if token.is_symbol("(") => depth += 1,
            token if token.is_symbol(")") => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => break,
            },
            token if depth == 0 => flat.push(token),
            _ => {}
        }
    }
    let Some(Token::Word(table)) = flat.get(if is_update { 1 } else { 2 }) else {
        return vec![format!("{verb} of no table")];
    };
    let mut found = Vec::new();
    let place = flat.iter().position(|token| token.is("where"));
    let (head, condition) = flat.split_at(place.unwrap_or(flat.len()));
    if is_update && head.iter().any(|token| token.is("from")) {
        found.push("update from".to_owned());
    }
    if !is_update && head.iter().any(|token| token.is("using")) {
        found.push("delete using".to_owned());
    }
    let compares = |name: &str| condition.windows(2).any(|pair| pair[0].is(name) && pair[1].is_symbol("="));
    if condition.is_empty() || !condition.iter().any(|token| token.is_symbol("=") || token.is("in")) {
        found.push(format!("unbounded {verb}"));
    } else if table == "semel_records"
        && !(compares("id") && compares("token") && ["revision", "epoch", "state"].into_iter().any(compares))
    {
        found.push(format!("unguarded {verb}"));
    }
    if is_update && tokens.iter().any(|token| token.is("clock_timestamp")) {
        found.push("clock_timestamp in an update".to_owned());
    }
    found
}

/// Departures of a statement that makes a table or an index.
fn of_schema(tokens: &[Token]) -> Vec<String> {
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is(word));
    let mut found = Vec::new();
    if !["table", "index", "unique"].into_iter().any(|word| is(1, word)) {
        let what = match tokens.get(1) {
            Some(Token::Word(what)) => what.as_str(),
            Some(Token::Value | Token::Symbol(_)) | None => "nothing",
        };
        return vec![format!("statement create {what}")];
    }
    if is(1, "unique") {
        found.push("second unique index".to_owned());
    }
    if tokens.iter().any(|token| token.is("concurrently")) {
        found.push("concurrently".to_owned());
    }
    if is(1, "table") {
        let unique = tokens.iter().any(|token| token.is("unique"));
        found.extend(unique.then(|| "second unique index".to_owned()));
        // A column begins a line of its own: its name is known, everything behind it is listed.
        let mut depth = 0_usize;
        let mut is_name = false;
        for token in &tokens[2..] {
            match token {
                Token::Symbol(symbol) => {
                    match symbol.as_str() {
                        "(" => depth += 1,
                        ")" => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    is_name = depth == 1 && matches!(symbol.as_str(), "(" | ",");
                }
                Token::Word(word) if depth == 1 && !is_name && !SCHEMA_WORDS.contains(&word.as_str()) => {
                    found.push(format!("word {word} in a table"));
                }
                Token::Word(_) | Token::Value => is_name = false,
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
