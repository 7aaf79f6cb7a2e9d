//! Endpoints that need no key, by name (`--ignore`) or by a pattern (`--exclude`).

use anyhow::{Context, ensure};

use super::judge::Endpoint;

/// Endpoints that are left out.
pub(super) struct LeftOut<'a> {
    /// The flag that names them.
    flag: &'static str,
    text: &'a str,
    /// `None` means each method.
    method: Option<&'a str>,
    path: &'a str,
    is_pattern: bool,
}

impl<'a> LeftOut<'a> {
    /// One endpoint: a method and a path as the document has them.
    pub(super) fn named(text: &'a str) -> anyhow::Result<LeftOut<'a>> {
        let (method, path) = text.trim().split_once(' ').with_context(|| {
            format!("--ignore {text:?}: a method and a path are wanted, such as 'POST /login'")
        })?;
        Ok(LeftOut {
            flag: "--ignore",
            text,
            method: Some(method),
            path: path.trim_start(),
            is_pattern: false,
        })
    }

    /// All endpoints that a pattern matches: a path, or a method and a path, where `*` stands for any text.
    pub(super) fn pattern(text: &'a str) -> anyhow::Result<LeftOut<'a>> {
        let (method, path) = match text.trim().split_once(' ') {
            Some((method, path)) => (Some(method).filter(|method| *method != "*"), path.trim_start()),
            None => (None, text.trim()),
        };
        ensure!(!path.is_empty(), "--exclude {text:?}: a path is wanted, such as '*/search'");
        Ok(LeftOut { flag: "--exclude", text, method, path, is_pattern: true })
    }

    pub(super) fn is(&self, endpoint: &Endpoint) -> bool {
        let method = self.method.is_none_or(|method| endpoint.method.eq_ignore_ascii_case(method));
        method
            && match self.is_pattern {
                true => matches(self.path, &endpoint.path),
                false => endpoint.path == self.path,
            }
    }

    /// Refuses a choice that leaves nothing out: the list does not outlive what it is about.
    pub(super) fn check(&self, endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let flag = self.flag;
        ensure!(
            endpoints.iter().any(|endpoint| self.is(endpoint)),
            "{flag} '{}': the audit lists no such endpoint",
            self.text.trim()
        );
        Ok(())
    }
}

/// Whether the text is the pattern, where `*` stands for any text.
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
