//! Splits SQL into tokens, and a script into statements. Used by the rules only; knows no grammar.

/// A token of SQL. Comments and spaces are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword or name, in lower case.
    Word(String),
    /// A text in quotes, a quoted name, a number or a parameter.
    Value,
    /// Punctuation or an operator.
    Symbol(String),
}

impl Token {
    /// Returns true for this keyword or name.
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Token::Word(own) if own == word)
    }

    /// Returns true for this symbol.
    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self, Token::Symbol(own) if own == symbol)
    }
}

/// Operators of two characters.
const PAIRS: [&str; 7] = ["::", "<>", "<=", ">=", "||", "!=", "->"];

/// Returns the tokens of each statement of a script.
pub(super) fn statements(sql: &str) -> Vec<Vec<Token>> {
    let (mut all, mut own) = (Vec::new(), Vec::new());
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if first.is_whitespace() => first.len_utf8(),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            ';' => {
                all.push(std::mem::take(&mut own));
                1
            }
            '\'' | '"' => {
                own.push(Token::Value);
                quoted(rest, first)
            }
            '$' if rest.starts_with("$$") => {
                own.push(Token::Value);
                rest[2..].find("$$").map_or(rest.len(), |end| end + 4)
            }
            'E' | 'e' if rest[1..].starts_with('\'') => {
                own.push(Token::Value);
                1 + quoted(&rest[1..], '\'')
            }
            '$' | '0'..='9' => {
                own.push(Token::Value);
                length_while(rest, |letter| letter == '$' || letter == '.' || letter.is_ascii_alphanumeric())
            }
            _ if first.is_alphabetic() || first == '_' => {
                let length = length_while(rest, |letter| letter.is_alphanumeric() || letter == '_');
                own.push(Token::Word(rest[..length].to_lowercase()));
                length
            }
            _ => {
                let pair = PAIRS.into_iter().find(|pair| rest.starts_with(pair));
                let length = pair.map_or(first.len_utf8(), str::len);
                own.push(Token::Symbol(rest[..length].to_owned()));
                length
            }
        };
        rest = &rest[length..];
    }
    all.push(own);
    all.retain(|statement| !statement.is_empty());
    all
}

fn length_while(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|letter| !belongs(letter)).unwrap_or(text.len())
}

/// Returns the length of the quoted text at the beginning. A doubled quote is two texts side by side, which is the same
/// here.
fn quoted(text: &str, quote: char) -> usize {
    text[1..].find(quote).map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_comments_hide_no_statement_and_make_none() {
        let found = statements("SELECT 'a; b', \"c d\" -- d; e\n; BEGIN; $$ x; y $$");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0][0].is("select") && found[1][0].is("begin"));
        assert_eq!(found[2], [Token::Value]);
    }

    #[test]
    fn a_cast_is_one_symbol() {
        let found = statements("$1::bytea[]");
        assert!(found[0][1].is_symbol("::") && found[0][2].is("bytea") && found[0][3].is_symbol("["));
    }

    #[test]
    fn a_doubled_quote_ends_no_text() {
        assert_eq!(statements("SELECT 'it''s; one'").len(), 1);
    }
}
