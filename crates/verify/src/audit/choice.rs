//! Endpoints that need no key: by name (`--ignore`), or by a pattern (`--exclude`).

use super::error::AuditError;
use super::judge::AuditedEndpoint;

/// A choice of endpoints that the audit leaves out.
pub struct LeftOut<'a> {
    /// The flag of this choice.
    flag: &'static str,
    text: &'a str,
    /// `None` stands for every method.
    method: Option<&'a str>,
    path: &'a str,
    is_pattern: bool,
}

impl<'a> LeftOut<'a> {
    /// Reads one endpoint: a method and a path, as the document has them.
    ///
    /// # Errors
    /// If one of the two is missing.
    pub fn named(text: &'a str) -> Result<LeftOut<'a>, AuditError> {
        let (method, path) =
            text.trim().split_once(' ').ok_or_else(|| AuditError::NoEndpoint(text.to_owned()))?;
        Ok(LeftOut {
            flag: "--ignore",
            text,
            method: Some(method),
            path: path.trim_start(),
            is_pattern: false,
        })
    }

    /// Reads a pattern of endpoints: a path, or a method and a path, where `*` stands for any text.
    ///
    /// # Errors
    /// If the path is missing.
    pub fn pattern(text: &'a str) -> Result<LeftOut<'a>, AuditError> {
        let (method, path) = match text.trim().split_once(' ') {
            Some((method, path)) => (Some(method).filter(|method| *method != "*"), path.trim_start()),
            None => (None, text.trim()),
        };
        if path.is_empty() {
            return Err(AuditError::NoPattern(text.to_owned()));
        }
        Ok(LeftOut { flag: "--exclude", text, method, path, is_pattern: true })
    }

    /// Returns whether the choice covers this endpoint.
    pub(super) fn is(&self, endpoint: &AuditedEndpoint) -> bool {
        let method = self.method.is_none_or(|method| endpoint.method.eq_ignore_ascii_case(method));
        method
            && match self.is_pattern {
                true => matches(self.path, &endpoint.path),
                false => endpoint.path == self.path,
            }
    }

    /// Refuses a choice that covers no endpoint, so that a list of choices cannot go stale.
    pub(super) fn check(&self, endpoints: &[AuditedEndpoint]) -> Result<(), AuditError> {
        if endpoints.iter().any(|endpoint| self.is(endpoint)) {
            return Ok(());
        }
        Err(AuditError::Unlisted { flag: self.flag, text: self.text.trim().to_owned() })
    }
}

/// Returns whether the text matches the pattern, where `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, is_so) in [
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("*", "/a", true),
            ("*/search", "/v2/orders/search", true),
            ("*/search", "/v2/orders/search/more", false),
            ("/v2/*/search", "/v2/orders/search", true),
            ("/v2/*/search*", "/v2/orders/search:batch", true),
            ("/a*a", "/a", false),
            ("/a*b*c", "/axbxc", true),
            ("/a*b*c", "/axcxb", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, text), is_so, "{pattern} {text}");
        }
    }
}
