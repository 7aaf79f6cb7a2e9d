//! Finds the SQL in Rust source, and the SQL that no test sent. Tests of `stores` and `flow` call it with the folders
//! that hold their statements. A constant counts as sent if one statement has all of its literals, in their order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::normalized;

/// First words of statements.
const VERBS: [&str; 16] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "WITH",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "CREATE",
    "ALTER",
    "DROP",
    "LOCK",
    "SET",
    "SAVEPOINT",
    "LISTEN",
    "NOTIFY",
];

/// SQL in the source: one statement, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlLiteral {
    /// File and, for a constant or macro, its name.
    pub place: String,
    /// Literal parts in their order, with single spaces.
    pub parts: Vec<String>,
}

impl SqlLiteral {
    fn length(&self) -> usize {
        self.parts.iter().map(String::len).sum()
    }
}

/// Returns the SQL of the Rust files at these paths; of a folder, of all files below it. Tests in the files are left
/// out.
///
/// # Errors
/// If a file cannot be read, or is not Rust.
pub fn literals(paths: &[PathBuf]) -> Result<Vec<SqlLiteral>, String> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let mut below: Vec<PathBuf> = std::fs::read_dir(path)
                .map_err(|error| format!("{}: {error}", path.display()))?
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| path.is_dir() || path.extension().is_some_and(|end| end == "rs"))
                .collect();
            below.sort();
            found.extend(literals(&below)?);
        } else {
            let text =
                std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let tokens: TokenStream = text.parse().map_err(|error| format!("{}: {error}", path.display()))?;
            collect(tokens, &name_of(path), &mut found);
        }
    }
    Ok(found)
}

/// Returns the statements that `own` parts of the source sent: of other code's, a recorded session may have more. A
/// statement of which one of the `others` has more text is theirs.
pub fn sent_by<'a>(
    own: &[SqlLiteral],
    others: &[SqlLiteral],
    statements: &'a BTreeSet<String>,
) -> BTreeSet<&'a String> {
    let most = |literals: &[SqlLiteral], sql: &str| {
        literals.iter().filter(|literal| begins(sql, literal)).map(SqlLiteral::length).max()
    };
    statements.iter().filter(|sql| most(own, sql).is_some_and(|own| Some(own) >= most(others, sql))).collect()
}

/// Returns true for a statement that begins with the literal's text and has all of it. A single word, such as `SELECT`
/// before a macro, begins any statement, and none counts.
fn begins(sql: &str, literal: &SqlLiteral) -> bool {
    let first = literal.parts.first().is_some_and(|first| sql.starts_with(first.as_str()));
    let words = literal.parts.iter().flat_map(|part| part.split_whitespace());
    first && words.take(2).count() == 2 && has_in_order(sql, &literal.parts)
}

/// Returns the SQL that none of the statements has.
pub fn unsent<'a>(literals: &'a [SqlLiteral], statements: &BTreeSet<String>) -> Vec<&'a SqlLiteral> {
    let was_sent = |literal: &SqlLiteral| statements.iter().any(|sql| has_in_order(sql, &literal.parts));
    literals.iter().filter(|literal| !was_sent(literal)).collect()
}

fn has_in_order(sql: &str, parts: &[String]) -> bool {
    let mut rest = sql;
    parts.iter().all(|part| match rest.find(part.as_str()) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn collect(tokens: TokenStream, file: &str, found: &mut Vec<SqlLiteral>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        if let [TokenTree::Punct(sign), TokenTree::Group(attribute), ..] = rest
            && sign.as_char() == '#'
        {
            at += 2;
            if attribute.stream().to_string().replace(' ', "") == "cfg(test)" {
                at += length_of_item(&tokens[at..]);
            }
        } else if let Some((name, length)) = constant(rest) {
            let body: TokenStream = rest[..length].iter().cloned().collect();
            let parts = texts(body.clone(), true);
            let is_macro = body.into_iter().any(|token| token.to_string() == "!");
            if is_macro || parts.first().is_some_and(|first| begins_statement(first)) {
                push(found, format!("{file} {name}"), &parts);
            }
            at += length;
        } else if let [
            TokenTree::Ident(word),
            TokenTree::Punct(_),
            TokenTree::Ident(name),
            TokenTree::Group(body),
            ..,
        ] = rest
            && word == "macro_rules"
        {
            let parts = texts(body.stream(), true);
            if parts.first().is_some_and(|first| begins_statement(first)) {
                push(found, format!("{file} {name}!"), &parts);
            }
            at += 4;
        } else {
            match &tokens[at] {
                TokenTree::Group(group) => collect(group.stream(), file, found),
                TokenTree::Literal(literal) => {
                    if let Some(text) = text_of(&literal.to_string()).filter(|text| begins_statement(text)) {
                        push(found, file.to_owned(), &[text]);
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
            at += 1;
        }
    }
}

/// Returns the name and length of the constant text at the beginning.
fn constant(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let [TokenTree::Ident(word), TokenTree::Ident(name), rest @ ..] = tokens else { return None };
    let end = rest.iter().position(|token| token.to_string() == ";")?;
    let equals = rest[..end].iter().position(|token| token.to_string() == "=")?;
    let is_text = rest[..equals].iter().any(|token| token.to_string() == "str");
    (word == "const" && is_text).then(|| (name.to_string(), end + 2))
}

/// Returns the length of the item at the beginning: up to its body, or its semicolon.
fn length_of_item(tokens: &[TokenTree]) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => token.to_string() == ";",
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// Returns true for SQL of more than one word.
fn begins_statement(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.next().is_some_and(|first| VERBS.contains(&first.trim_end_matches(';'))) && words.next().is_some()
}

/// Returns all texts in the tokens, without attributes. Texts within another macro than `concat` may come in another order,
/// and are left out; if `is_outermost`, those of the first one count.
fn texts(tokens: TokenStream, is_outermost: bool) -> Vec<String> {
    let (mut found, mut before) = (Vec::new(), [String::new(), String::new()]);
    for token in tokens {
        match &token {
            TokenTree::Group(group) => {
                let is_attribute = before[1] == "#";
                let is_other_macro = before[1] == "!" && before[0] != "concat" && !is_outermost;
                if !is_attribute && !is_other_macro {
                    found.extend(texts(group.stream(), is_outermost && before[1] != "!"));
                }
            }
            TokenTree::Literal(literal) => found.extend(text_of(&literal.to_string())),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
        before = [std::mem::take(&mut before[1]), token.to_string()];
    }
    found
}

fn text_of(literal: &str) -> Option<String> {
    syn::parse_str::<syn::LitStr>(literal).ok().map(|text| text.value())
}

fn push(found: &mut Vec<SqlLiteral>, place: String, texts: &[String]) {
    // A name in braces is a hole of `format!`.
    let parts = texts.iter().flat_map(|text| text.split(['{', '}']).step_by(2));
    let parts: Vec<String> = parts.map(normalized).filter(|part| !part.is_empty()).collect();
    found.push(SqlLiteral { place, parts });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(source: &str) -> Vec<SqlLiteral> {
        let mut found = Vec::new();
        collect(source.parse().expect("it is Rust"), "a.rs", &mut found);
        found
    }

    #[test]
    fn constants_macros_and_bare_statements_are_found() {
        let found = found_in(
            r#"
            /// SELECT in a comment
            const A: &str = concat!("SELECT ", b!(), " FROM
                t");
            const NAME: &str = "no statement";
            macro_rules! c { ($x:literal) => { concat!("UPDATE t SET a = 1 WHERE ", $x) } }
            fn d() { run("COMMIT"); run(&format!("SET LOCAL e = '{}ms'", 1)); }
            #[cfg(test)]
            mod tests { const F: &str = "SELECT of a test"; }
            "#,
        );
        let places: Vec<(&str, usize)> =
            found.iter().map(|found| (found.place.as_str(), found.parts.len())).collect();
        assert_eq!(places, [("a.rs A", 2), ("a.rs c!", 1), ("a.rs", 2)]);
    }

    #[test]
    fn sql_that_was_not_sent_is_found() {
        let found = found_in(r#"const A: &str = concat!("SELECT ", b!(), " FROM t");"#);
        let sent = |sql: &str| unsent(&found, &BTreeSet::from([sql.to_owned()])).is_empty();
        assert!(sent("SELECT a, b FROM t"));
        assert!(!sent("SELECT a FROM other"));
        assert!(!sent("WITH t AS (x) FROM t SELECT"));
    }

    #[test]
    fn statements_of_other_code_are_left_out() {
        let own = r#"const A: &str = concat!("SELECT ", b!("x"), " FROM t"); const B: &str = concat!("SELECT ", b!());"#;
        let others = found_in(r#"const C: &str = concat!("SELECT ", b!(), " FROM t LIMIT 1");"#);
        let statements = ["SELECT a FROM t", "SELECT a FROM t LIMIT 1", "SELECT 1", "DELETE FROM t"];
        let statements = BTreeSet::from(statements.map(str::to_owned));
        let sent: Vec<&String> = sent_by(&found_in(own), &others, &statements).into_iter().collect();
        assert_eq!(sent, ["SELECT a FROM t"]);
    }
}
