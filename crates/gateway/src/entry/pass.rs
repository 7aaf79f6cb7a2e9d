//! `[[pass]]`: routes whose requests are exempt from some entry rules.

use std::collections::HashMap;

use http::Method;
use semel_settings::Exemption;

/// Routes of all `[[pass]]` tables.
#[derive(Clone, Debug, Default)]
pub struct Passes(HashMap<Method, matchit::Router<Vec<Exemption>>>);

impl Passes {
    /// Makes the routes of these rules. No two rules may match the same request.
    pub fn new<'a>(
        rules: impl IntoIterator<Item = (&'a Method, &'a str, &'a [Exemption])>,
    ) -> Result<Passes, matchit::InsertError> {
        let mut routes: HashMap<Method, matchit::Router<Vec<Exemption>>> = HashMap::new();
        for (method, path, allow) in rules {
            routes.entry(method.clone()).or_default().insert(path, allow.to_vec())?;
        }
        Ok(Passes(routes))
    }

    /// Returns true if a request of this method and path has this exemption.
    pub fn allows(&self, method: &Method, path: &str, exemption: Exemption) -> bool {
        let allowed = self.0.get(method).and_then(|routes| routes.at(path).ok());
        allowed.is_some_and(|allowed| allowed.value.contains(&exemption))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_rule_is_about_its_own_method_and_path_alone() {
        let body = &[Exemption::Body][..];
        let rules = [(&Method::GET, "/search/{index}", body), (&Method::OPTIONS, "/files/{*rest}", body)];
        let passes = Passes::new(rules).expect("they are apart");
        for (method, path, expected) in [
            (Method::GET, "/search/a", true),
            (Method::GET, "/search", false),
            (Method::GET, "/search/a/b", false),
            (Method::HEAD, "/search/a", false),
            (Method::OPTIONS, "/files/a/b", true),
            (Method::OPTIONS, "*", false),
        ] {
            assert_eq!(passes.allows(&method, path, Exemption::Body), expected, "{method} {path}");
        }
        assert!(Passes::new([(&Method::GET, "/{a}", body), (&Method::GET, "/{b}", body)]).is_err());
        let nothing = Passes::new([(&Method::GET, "/a", &[][..])]).expect("it is alone");
        assert!(!nothing.allows(&Method::GET, "/a", Exemption::Body));
    }
}
