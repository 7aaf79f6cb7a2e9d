//! Route syntax of other programs. Semel would match each literally, and so no request.

use thiserror::Error;

/// A route in the syntax of another program. Its text gives Semel's syntax.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ForeignRoute {
    /// `:id`, as in Express, and `<id>`, as in Flask.
    #[error(
        "`{found}` would be matched letter by letter: a placeholder is written `{{{name}}}`, so \"{meant}\""
    )]
    Placeholder {
        /// The segment as written.
        found: String,
        /// The name of the placeholder.
        name: String,
        /// The path in Semel's syntax.
        meant: String,
    },
    /// `{id:int}`, as in many frameworks.
    #[error(
        "`{{{found}}}` has more than a name: a placeholder stands for any segment, and is written `{{{name}}}`"
    )]
    Constraint {
        /// Text in the braces.
        found: String,
        /// Name in that text.
        name: String,
    },
    /// `*` for a segment, or for all that follow.
    #[error(
        "`*` would be matched letter by letter: write `{{name}}` for one segment, or `{{*rest}}` at the end for all that follow"
    )]
    Star,
    /// A regular expression.
    #[error(
        "it is read as a path, and not as a regular expression: write `{{name}}` for one segment, or `{{*rest}}` at the end for all that follow"
    )]
    RegularExpression,
    /// A word for all methods, or several of them.
    #[error("`{0}` is no method of HTTP: write one rule for each method")]
    Methods(String),
}

/// Words and signs of other programs for all methods.
const ALL_METHODS: [&str; 4] = ["ANY", "ALL", "*", "EVERY"];

/// Checks the method of a route.
///
/// # Errors
/// If the word means several methods.
pub fn check_method(word: &str) -> Result<(), ForeignRoute> {
    let upper = word.to_ascii_uppercase();
    match ALL_METHODS.contains(&upper.as_str()) || word.contains(['|', ',']) {
        true => Err(ForeignRoute::Methods(word.to_owned())),
        false => Ok(()),
    }
}

/// Checks the path of a route.
///
/// # Errors
/// If another program would read placeholders, or an expression, in it.
pub fn check_path(path: &str) -> Result<(), ForeignRoute> {
    if let Some((found, name)) = path.split('/').find_map(|segment| Some((segment, placeholder(segment)?))) {
        let respelled =
            |segment| placeholder(segment).map_or_else(|| segment.to_owned(), |name| format!("{{{name}}}"));
        let meant = path.split('/').map(respelled).collect::<Vec<String>>().join("/");
        return Err(ForeignRoute::Placeholder { found: found.to_owned(), name: name.to_owned(), meant });
    }
    let literal = outside_of_braces(path)?;
    // OData has `$` at the beginning of segments, and parentheses.
    let is_expression = literal.contains(['^', '\\', '[', ']', '|'])
        || [".*", ".+", "(?"].iter().any(|sign| literal.contains(sign))
        || literal.ends_with('$');
    if is_expression {
        return Err(ForeignRoute::RegularExpression);
    }
    if literal.contains('*') {
        return Err(ForeignRoute::Star);
    }
    Ok(())
}

/// Returns the name in a segment that is a placeholder elsewhere: `:id`, `:id?`, `<id>`, `<int:id>`.
fn placeholder(segment: &str) -> Option<&str> {
    let bracketed = segment.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    let name = match bracketed {
        Some(inside) => inside.rsplit_once(':').map_or(inside, |(_, name)| name),
        None => segment.strip_prefix(':')?.trim_end_matches(['?', '+', '*']),
    };
    is_name(name).then_some(name)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns the path without its placeholders, whose names are checked.
fn outside_of_braces(path: &str) -> Result<String, ForeignRoute> {
    let (mut literal, mut rest) = (String::new(), path);
    while let Some((before, inside)) = rest.split_once('{') {
        literal.push_str(before);
        // A doubled brace is one letter.
        if let Some(after) = inside.strip_prefix('{') {
            rest = after;
            continue;
        }
        let Some((found, after)) = inside.split_once('}') else { break };
        let plain = found.strip_prefix('*').unwrap_or(found);
        if let Some((name, _)) = plain.split_once([':', '=', '<', '?', '+']).filter(|(name, _)| is_name(name))
        {
            return Err(ForeignRoute::Constraint { found: found.to_owned(), name: name.to_owned() });
        }
        rest = after;
    }
    literal.push_str(rest);
    Ok(literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_syntax_of_other_frameworks_is_refused_with_a_suggestion() {
        for (path, said) in [
            ("/users/:id", "\"/users/{id}\""),
            ("/users/:id?/keys/:key", "\"/users/{id}/keys/{key}\""),
            ("/users/<id>", "\"/users/{id}\""),
            ("/users/:user_id", "\"/users/{user_id}\""),
            ("/users/<int:id>/keys", "\"/users/{id}/keys\""),
            ("/users/{id:int}", "`{id}`"),
            ("/users/{id:[0-9]+}", "`{id}`"),
            ("/users/{id=*}", "`{id}`"),
            ("/users/{id?}", "`{id}`"),
            ("/files/*", "`{*rest}`"),
            ("/files/**", "`{*rest}`"),
            ("/files/*/lock", "`{name}`"),
            ("/files/*.json", "`{name}`"),
            ("^/users", "regular expression"),
            ("/users/[0-9]+", "regular expression"),
            ("/users/\\d+", "regular expression"),
            ("/users/(.*)", "regular expression"),
            ("/users/(?:a|b)", "regular expression"),
            ("/users$", "regular expression"),
        ] {
            let error = check_path(path).expect_err(path).to_string();
            assert!(error.contains(said), "{path}: {error}");
        }
        for method in ["ANY", "any", "ALL", "*", "GET|POST", "POST,PUT"] {
            assert!(check_method(method).is_err(), "{method}");
        }
    }

    #[test]
    fn unusual_but_valid_route_paths_and_methods_are_accepted() {
        for path in [
            "/",
            "/users/{id}",
            "/users/:",
            "/users/<>",
            "/users/:a-b",
            "/users/:a.b",
            "/files/{*rest}",
            "/v1/operations/{name}:cancel",
            "/v1/things:batchCreate",
            "/$batch",
            "/Orders(5)/$value",
            "/Orders({id})",
            "/a+b/c.d/~e",
            "/users/",
            "/p%61y/{id}%3a",
            "/{{literal}}",
        ] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
        for method in ["POST", "PATCH", "PURGE", "FROBNICATE"] {
            assert_eq!(check_method(method), Ok(()), "{method}");
        }
    }
}
