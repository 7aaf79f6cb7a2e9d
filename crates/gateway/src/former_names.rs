//! Operation names that have live records but no rule: those commands had no rule when they were claimed, or
//! their rule was renamed or removed since. A retry under another name is another command and would run
//! again.

use std::collections::{BTreeSet, HashMap};

use anyhow::Context as _;
use http::Method;
use semel_core::{Filter, OperationName, Records};
use semel_settings::{Config, OperationConfig, PrincipalSource};

/// Tenant and caller of every record that was made with `source = "none"`.
const LOCAL: &str = "local";

/// Name with live records that no rule has.
#[derive(Debug, PartialEq, Eq)]
pub struct FormerName {
    /// Name in the store.
    pub name: String,
    /// Operation that requests of this name match now.
    pub successor: Option<OperationName>,
}

/// Finds the names among `live`, those of all records, that no rule has, except those of commands that have no rule now
/// either.
pub fn former_names(operations: &[OperationConfig], live: &[String]) -> Vec<FormerName> {
    let routes = routes(operations);
    let names: BTreeSet<&str> = live.iter().map(String::as_str).collect();
    let is_named =
        |name: &str| operations.iter().flat_map(OperationConfig::names).any(|own| own.as_str() == name);
    let former = |name: &str| {
        let unmatched = name.split_once(' ').filter(|(_, path)| path.starts_with('/'));
        let successor = unmatched.and_then(|(method, path)| matched(&routes, method, path));
        // A command without a rule keeps its method and path as its name.
        let is_lost = successor.is_some() || unmatched.is_none();
        is_lost.then(|| FormerName { name: name.to_owned(), successor: successor.cloned() })
    };
    names.into_iter().filter(|name| !is_named(name)).filter_map(former).collect()
}

type FormerRoutes<'a> = HashMap<&'a Method, matchit::Router<&'a OperationName>>;

fn routes(operations: &[OperationConfig]) -> FormerRoutes<'_> {
    let mut routes = FormerRoutes::new();
    for operation in operations {
        // The checked settings have no duplicate routes.
        let _ = routes
            .entry(&operation.route.method)
            .or_default()
            .insert(&*operation.route.path, &operation.name);
    }
    routes
}

/// Returns the operation that now matches requests whose name without a rule is this method and path.
fn matched<'a>(routes: &FormerRoutes<'a>, method: &str, path: &str) -> Option<&'a OperationName> {
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    // One identifier stands for all of them.
    let path = path.replace("{id}", "1");
    routes.get(&method)?.at(&path).ok().map(|found| *found.value)
}

/// Returns the operations with the names that their commands had before they had a rule, while records under
/// those names live. Warns of names that belong to no operation.
pub async fn adopt(config: &Config, store: &dyn Records) -> Vec<OperationConfig> {
    let live = store.operations().await.unwrap_or_else(|error| {
        // Unreadable records do not stop the gateway.
        tracing::warn!(%error, "the names of live records cannot be read: keys from before a rule may look new");
        Vec::new()
    });
    let mut operations = config.operations.clone();
    for FormerName { name, successor } in former_names(&config.operations, &live) {
        let operation = operations.iter_mut().find(|operation| Some(&operation.name) == successor.as_ref());
        match (operation, OperationName::new(&name)) {
            (Some(operation), Ok(former)) => {
                tracing::info!(
                    operation = operation.name.as_str(),
                    former = name,
                    "records from before the rule count"
                );
                operation.aliases.push(former);
            }
            _ => tracing::warn!("{}", lost(&name)),
        }
    }
    operations
}

/// Describes what happens to the keys under a name that no operation takes over.
pub fn lost(name: &str) -> String {
    format!(
        "the store holds records of the operation {name:?}, which no rule names any more: a retry of one of their keys runs \
         again; give it as an alias of the operation that it became"
    )
}

/// Warns of records that were made while every caller was `local`, if callers have names now. Reads many
/// records if there is none.
pub async fn without_identity(config: &Config, store: &dyn Records) -> anyhow::Result<Option<String>> {
    if config.identity == PrincipalSource::None {
        return Ok(None);
    }
    let local = Some(LOCAL.to_owned());
    let mut filter = Filter { tenant: local.clone(), caller: local, limit: 1, ..Filter::default() };
    let is_found = loop {
        let page = store.list(&filter).await.context("the records cannot be read")?;
        if !page.records.is_empty() || page.next.is_none() {
            break !page.records.is_empty();
        }
        filter.after = page.next;
    };
    Ok(is_found.then(|| {
        "the store holds records that were made with `source = \"none\"`, under the caller local/local: a retry of one of their \
         keys by a caller with a name runs again"
            .to_owned()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::ADDRESS_CHECKS;
    use semel_settings::{Sources, load};

    fn operations(text: &str) -> Vec<OperationConfig> {
        let file = format!("upstream = \"http://127.0.0.1:3000\"\n{text}");
        load(&Sources::new().file("semel.toml", file), ADDRESS_CHECKS)
            .expect("it can be used")
            .config
            .operations
    }

    fn found(text: &str, live: &[&str]) -> Vec<(String, Option<String>)> {
        let live: Vec<String> = live.iter().map(|name| (*name).to_owned()).collect();
        let former = former_names(&operations(text), &live);
        former
            .into_iter()
            .map(|former| (former.name, former.successor.map(|name| name.to_string())))
            .collect()
    }

    #[test]
    fn a_name_that_no_rule_has_is_found_with_the_rule_that_takes_its_requests_now() {
        let rule =
            |name: &str, route: &str| format!("[[operation]]\nname = \"{name}\"\nmatch = \"{route}\"\n");
        let pay = rule("pay", "POST /pay");
        let capture = rule("capture", "POST /orders/{order}/capture");
        assert_eq!(found(&pay, &["POST /pay", "pay"]), [("POST /pay".to_owned(), Some("pay".to_owned()))]);
        let named = ("POST /orders/{id}/capture".to_owned(), Some("capture".to_owned()));
        assert_eq!(found(&capture, &["POST /orders/{id}/capture", "PATCH /orders/{id}/capture"]), [named]);
        assert_eq!(
            found(&pay, &["gone", "POST /other"]),
            [("gone".to_owned(), None)],
            "others have no rule still"
        );
        let aliased = format!("{pay}aliases = [\"POST /pay\", \"gone\"]\n");
        assert_eq!(found(&aliased, &["POST /pay", "gone"]), []);
    }
}
