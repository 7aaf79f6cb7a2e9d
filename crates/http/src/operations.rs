//! The rules of all operations: which requests are commands, and their names and policies.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use semel_core::method::is_command;
use semel_core::path::PathExceptions;
use semel_core::policy::{KeyRequirement, Mode, Profile, Spelling, StoreResponse};
use semel_core::route::{ForeignRoute, RouteError, RoutePath, check_method, check_path};
use semel_core::{JsonPointer, OperationName, Policy, Tier, WaitingSearch};

use crate::operation::{ConfigError, Operation};
use crate::operation_labels::OperationLabels;
use crate::routes::{Displaced, PlacedPath, Routes};

/// The rule of a command, which is known before its body is read.
#[derive(Clone)]
pub(crate) struct CommandRule {
    /// The route in the spelling of the operation; `None` if no operation matches.
    route: Option<Arc<str>>,
    pub(crate) name: OperationName,
    /// The name for metrics and logs.
    pub(crate) label: Arc<str>,
    pub(crate) method: Method,
    /// The path of its route; without a route, the path of the request as its name has it.
    pub(crate) path: Arc<str>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) exclude: Arc<[JsonPointer]>,
    pub(crate) reference: Option<Arc<JsonPointer>>,
    pub(crate) former: Arc<[OperationName]>,
    /// True if the handler writes the record itself, in the transaction of its effect.
    pub(crate) local: bool,
    /// True if requests without credentials and without a key pass through unprotected.
    pub(crate) anonymous: bool,
}

impl CommandRule {
    /// Returns true if a worker executes its commands.
    pub(crate) fn is_async(&self) -> bool {
        self.policy.mode == Mode::Async && !self.local
    }

    /// Returns the method and the path of its requests, with parameters in place of identifiers.
    pub(crate) fn route(&self) -> &str {
        self.route.as_deref().unwrap_or(self.name.as_str())
    }

    /// Returns its name and its former names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &OperationName> {
        std::iter::once(&self.name).chain(&*self.former)
    }
}

/// The rules of all operations, and the default policy of commands that match none.
pub(crate) struct Operations {
    defaults: Arc<Policy>,
    routes: Routes<CommandRule>,
    by_name: HashMap<String, Arc<Policy>>,
    labels: OperationLabels,
    /// The names, former ones too, of operations whose commands a worker executes.
    asynchronous: Vec<String>,
    /// Routes of gRPC calls that pass unprotected.
    grpc: matchit::Router<()>,
    /// Every operation, in the order of the builder.
    told: Vec<LayerOperation>,
}

/// Operation of a layer, for tools that show and settle its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerOperation {
    /// The name.
    pub name: OperationName,
    /// Former names, whose live records still count.
    pub former: Vec<OperationName>,
    /// The method of its requests.
    pub method: Method,
    /// The path of its requests: `{name}` stands for any one segment.
    pub path: String,
    /// The policy.
    pub policy: Policy,
    /// The member of the body that names the business transaction.
    pub business_reference: Option<JsonPointer>,
}

impl Operations {
    pub(crate) fn new(
        defaults: Policy,
        operations: Vec<Operation>,
        passing: Vec<(String, PathExceptions)>,
        calls: Vec<String>,
    ) -> Result<Operations, ConfigError> {
        defaults.validate().map_err(ConfigError::Defaults)?;
        let (mut by_name, mut labels) = (HashMap::new(), OperationLabels::new());
        let (mut asynchronous, mut told) = (Vec::new(), Vec::new());
        let mut routes = Routes::default();
        let mut former = HashMap::new();
        for operation in operations {
            let Operation { name, route, change, exclude, reference, aliases, allow, local, anonymous } =
                operation;
            let (method, path) = parse_route(&name, &route)?;
            if let Some(refused) = path.refused_by(allow) {
                return Err(ConfigError::Path(name, refused.to_string()));
            }
            let mut policy = defaults.clone();
            change.iter().for_each(|change| change(&mut policy));
            if let (Some(without), Spelling::Refuse) = (path.without_slash(), policy.trailing_slash) {
                tracing::warn!(
                    operation = name,
                    "its route {path} ends in a slash: a request for {without} is refused; leave the slash out, or set `trailing_slash`"
                );
            }
            policy.validate().map_err(|error| ConfigError::Policy(name.clone(), error))?;
            let pointer = |text: String| {
                JsonPointer::parse(&text).map_err(|error| ConfigError::Pointer(name.clone(), text, error))
            };
            let operation_name = |text: &str| {
                OperationName::new(text).map_err(|error| ConfigError::Name(text.to_owned(), error))
            };
            let former_name = |alias: &String| operation_name(alias).map(|name| name.as_former());
            let rule = CommandRule {
                route: Some(Arc::from(route.as_str())),
                name: operation_name(&name)?,
                label: Arc::from(name.as_str()),
                method: method.clone(),
                path: Arc::from(path.as_str()),
                policy: Arc::new(policy),
                exclude: exclude.into_iter().map(pointer).collect::<Result<_, _>>()?,
                reference: reference.map(pointer).transpose()?.map(Arc::new),
                local,
                anonymous,
                former: aliases.iter().map(former_name).collect::<Result<_, _>>()?,
            };
            for alias in &*rule.former {
                if former.insert(alias.to_string(), name.clone()).is_some() {
                    return Err(ConfigError::Alias(name, alias.to_string()));
                }
            }
            if rule.is_async() {
                asynchronous.extend(rule.names().map(ToString::to_string));
            }
            if by_name.insert(name.clone(), rule.policy.clone()).is_some() {
                return Err(ConfigError::Repeated(name));
            }
            told.push(LayerOperation {
                name: rule.name.clone(),
                former: rule.former.to_vec(),
                method: method.clone(),
                path: path.as_str().to_owned(),
                policy: (*rule.policy).clone(),
                business_reference: rule.reference.as_deref().cloned(),
            });
            labels.add(rule.label.clone(), rule.former.iter().map(OperationName::as_str));
            let policy = rule.policy.clone();
            routes
                .insert(method, path, &policy, allow, rule)
                .map_err(|error| ConfigError::Path(name, error))?;
        }
        if let Some((alias, name)) =
            former.iter().find(|(alias, name)| *alias != *name && by_name.contains_key(*alias))
        {
            return Err(ConfigError::Alias(name.clone(), alias.clone()));
        }
        for (route, allow) in passing {
            let wrong = |error: String| ConfigError::Pass(route.clone(), error);
            let (method, path) =
                split_route(&route).ok_or_else(|| wrong("is not a method and a path".to_owned()))?;
            if is_command(&method) {
                return Err(wrong(format!("{method} is a command: its operation says what it allows")));
            }
            let path = RoutePath::parse(path).map_err(|error| wrong(error.to_string()))?;
            routes.pass(method, &path, allow).map_err(wrong)?;
        }
        let mut grpc = matchit::Router::new();
        for route in calls {
            let wrong = |error: String| ConfigError::Pass(route.clone(), error);
            let (_, path) = split_route(&route)
                .filter(|(method, _)| *method == Method::POST)
                .ok_or_else(|| wrong("is not POST and a path: gRPC has no other calls".to_owned()))?;
            let path = RoutePath::parse(path).map_err(|error| wrong(error.to_string()))?;
            grpc.insert(path.as_str(), ()).map_err(|error| wrong(error.to_string()))?;
        }
        let defaults = Arc::new(defaults);
        Ok(Operations { defaults, routes, by_name, labels, asynchronous, grpc, told })
    }

    /// Returns the labels of the operations.
    pub(crate) fn labels(&self) -> &OperationLabels {
        &self.labels
    }

    /// Returns the label of requests that match no rule.
    pub(crate) fn label(&self) -> Arc<str> {
        self.labels.unmatched().clone()
    }

    /// Returns every operation, in the order of the builder.
    pub(crate) fn told(&self) -> &[LayerOperation] {
        &self.told
    }

    /// Returns the policy of commands that match no rule.
    pub(crate) fn defaults(&self) -> &Policy {
        &self.defaults
    }

    /// Returns the name of an operation that stores only the address of its result, if there is one.
    pub(crate) fn with_references(&self) -> Option<&str> {
        let keeps = |policy: &Policy| policy.store_response == StoreResponse::Reference;
        let named = || self.by_name.iter().find(|(_, policy)| keeps(policy)).map(|(name, _)| name.as_str());
        if keeps(&self.defaults) { Some("defaults") } else { named() }
    }

    /// Checks that a store of this tier promises what the operations and the defaults need.
    pub(crate) fn check_tier(&self, promised: Tier) -> Result<(), ConfigError> {
        let tier = |place: String, policy: &Policy| {
            promised.check(policy.needs_tier).map_err(|error| ConfigError::Tier(place, error))
        };
        let mut named: Vec<_> = self.by_name.iter().collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        named.into_iter().try_for_each(|(name, policy)| tier(format!("operation {name:?}"), policy))?;
        tier("defaults".to_owned(), &self.defaults)
    }

    /// Returns the policy of the operation of this name.
    pub(crate) fn policy(&self, name: &OperationName) -> &Policy {
        self.by_name.get(name.as_str()).unwrap_or(&self.defaults)
    }

    /// Returns true for a gRPC call that passes unprotected: a `pass` names its route, and no operation does.
    pub(crate) fn passes_grpc(&self, rule: &CommandRule, parts: &Parts) -> bool {
        let is_unnamed = Arc::ptr_eq(&rule.label, self.labels.unmatched());
        is_unnamed && parts.method == Method::POST && self.grpc.at(parts.uri.path()).is_ok()
    }

    /// Returns a search for the commands that a worker executes here.
    pub(crate) fn waiting(&self) -> WaitingSearch {
        let any = self.defaults.mode == Mode::Async;
        WaitingSearch::new(false, (!any).then(|| self.asynchronous.clone()))
    }

    /// Returns true if there are asynchronous operations.
    pub(crate) fn has_async(&self) -> bool {
        self.defaults.mode == Mode::Async || !self.asynchronous.is_empty()
    }

    /// Returns the rule of a command that was claimed for a worker under `name`; `None` if there is none any more.
    pub(crate) fn for_worker(
        &self,
        method: &Method,
        path: &str,
        name: &OperationName,
    ) -> Option<CommandRule> {
        let rule = self.place(method, path).ok()?.rule;
        rule.filter(|rule| rule.is_async() && rule.names().any(|own| own == name))
    }

    /// Returns the one form of a request's path, and its rule if it is a command. A request without a rule passes through.
    pub(crate) fn place<'p>(&self, method: &Method, path: &'p str) -> Result<InPlace<'p>, Displaced> {
        if (*method == Method::OPTIONS && path == "*") || *method == Method::CONNECT {
            let profile = self.defaults.profile;
            return Ok(InPlace { path: Cow::Borrowed(path), rule: None, matched: None, profile });
        }
        let PlacedPath { path, rule } = self.routes.place(method, path)?;
        let matched = rule.map(|rule| rule.label.clone());
        let rule = match rule {
            Some(rule) => Some(rule.clone()),
            None => is_command(method).then(|| self.without_rule(method, &path)),
        };
        let profile = rule.as_ref().map_or(self.defaults.profile, |rule| rule.policy.profile);
        let rule = rule.filter(|rule| rule.policy.key != KeyRequirement::Ignored);
        Ok(InPlace { path, rule, matched, profile })
    }

    /// Returns the profile of the answers to a request, whether its path has a place or not.
    pub(crate) fn profile(&self, method: &Method, path: &str) -> Profile {
        self.place(method, path).map_or(self.defaults.profile, |place| place.profile)
    }

    fn without_rule(&self, method: &Method, path: &str) -> CommandRule {
        let name = OperationName::unmatched(method.as_str(), path);
        CommandRule {
            route: None,
            label: self.label(),
            method: method.clone(),
            path: Arc::from(path_of(&name)),
            name,
            policy: self.defaults.clone(),
            exclude: Arc::default(),
            reference: None,
            former: Arc::default(),
            local: false,
            anonymous: false,
        }
    }
}

/// Returns the path in the name of an operation that no rule has.
pub(crate) fn path_of(unmatched: &OperationName) -> &str {
    unmatched.as_str().split_once(' ').map_or("", |(_, path)| path)
}

/// A request's path in its one form, and the rule of its command.
pub(crate) struct InPlace<'p> {
    pub(crate) path: Cow<'p, str>,
    pub(crate) rule: Option<CommandRule>,
    /// The profile of its operation, also of one that keys mean nothing to; without an operation, the default.
    pub(crate) profile: Profile,
    /// The label of the rule that was matched, also of one that protects nothing.
    pub(crate) matched: Option<Arc<str>>,
}

/// Splits a route into a method and a path.
fn split_route(route: &str) -> Option<(Method, &str)> {
    let (word, path) = route.split_once(' ')?;
    let method: Method = word.parse().ok()?;
    (!word.contains(|c: char| c.is_ascii_lowercase())).then_some((method, path.trim_start()))
}

fn parse_route(name: &str, route: &str) -> Result<(Method, RoutePath), ConfigError> {
    let wrong = || ConfigError::Route(name.to_owned(), route.to_owned());
    let foreign = |error: ForeignRoute| ConfigError::Path(name.to_owned(), error.to_string());
    route
        .split_once(' ')
        .map_or(Ok(()), |(word, path)| check_method(word).and(check_path(path)))
        .map_err(foreign)?;
    let (method, path) = split_route(route).filter(|(_, path)| path.starts_with('/')).ok_or_else(wrong)?;
    if method.is_safe() || method == Method::CONNECT {
        return Err(ConfigError::NeverACommand(name.to_owned(), method));
    }
    let path = RoutePath::parse(path);
    let path = path.map_err(|error: RouteError| ConfigError::Path(name.to_owned(), error.to_string()))?;
    Ok((method, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn operations(list: Vec<Operation>) -> Result<Operations, String> {
        Operations::new(Policy::default(), list, Vec::new(), Vec::new()).map_err(|error| error.to_string())
    }

    fn name(operations: &Operations, method: &str, path: &str) -> Option<String> {
        let method = Method::from_bytes(method.as_bytes()).expect("tests use real methods");
        operations.place(&method, path).ok()?.rule.map(|rule| rule.name.to_string())
    }

    #[test]
    fn post_patch_and_unknown_methods_are_commands_without_a_rule() {
        let none = operations(vec![]).expect("no rules are fine");
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PUT", "DELETE", "PROPFIND", "QUERY"] {
            assert_eq!(name(&none, method, "/x"), None, "{method}");
        }
        for method in ["POST", "PATCH", "LOCK", "FROBNICATE"] {
            assert_eq!(name(&none, method, "/x/123"), Some(format!("{method} /x/{{id}}")), "{method}");
        }
    }

    #[test]
    fn a_rule_names_its_route_and_changes_the_defaults() {
        let day = Duration::from_secs(60);
        let rules = operations(vec![
            Operation::new("payments.capture", "POST /payments/{id}/capture").with(move |p| p.ttl = day),
            Operation::new("payments.replace", "PUT /payments/{id}"),
            Operation::new("internal.ping", "POST /ping").with(|p| p.key = KeyRequirement::Ignored),
        ])
        .expect("the rules are fine");
        assert_eq!(name(&rules, "POST", "/payments/7/capture").as_deref(), Some("payments.capture"));
        assert_eq!(name(&rules, "PUT", "/payments/7").as_deref(), Some("payments.replace"));
        assert_eq!(name(&rules, "DELETE", "/payments/7"), None);
        assert_eq!(name(&rules, "POST", "/ping"), None, "ignored, by name");
        assert_eq!(name(&rules, "POST", "/payments/7").as_deref(), Some("POST /payments/{id}"));
        let rule = rules.place(&Method::POST, "/payments/7/capture").expect("it has a place").rule;
        let rule = rule.expect("it is a command");
        assert_eq!((rule.policy.ttl, rule.policy.lease), (day, Policy::default().lease));
    }

    #[test]
    fn workers_look_for_asynchronous_operations() {
        let later = |policy: &mut Policy| policy.mode = Mode::Async;
        let rules = || {
            vec![
                Operation::new("reports.create", "POST /reports").with(later).alias("reports"),
                Operation::new("transfers.create", "POST /transfers").with(later).local(),
                Operation::new("payments.create", "POST /payments").with(|policy| policy.mode = Mode::Sync),
            ]
        };
        let named = operations(rules()).expect("the rules are fine");
        let sought = |operations: &Operations| {
            let mut search = operations.waiting();
            search.begin(1);
            search.page().map(|filter| filter.operations)
        };
        let names = vec!["reports.create".to_owned(), "reports".to_owned()];
        assert_eq!(sought(&named), Some(Some(names)), "only those with rules");
        let all = Policy { mode: Mode::Async, ..Policy::default() };
        let all = Operations::new(all, rules(), Vec::new(), Vec::new()).expect("the rules are fine");
        assert_eq!(sought(&all), Some(None));
        assert!(named.has_async() && all.has_async());
        assert!(!operations(vec![]).expect("no rules are fine").has_async());

        let under = |operations: &Operations, path: &str, name: &str| {
            let name = OperationName::new(name).expect("tests use real names");
            operations.for_worker(&Method::POST, path, &name).is_some()
        };
        assert!(under(&named, "/reports", "reports.create"));
        assert!(under(&named, "/reports", "reports"), "a former name");
        assert!(!under(&named, "/reports", "reports.make"), "nobody knows it any more");
        assert!(!under(&named, "/transfers", "transfers.create"), "its handler keeps the record itself");
        assert!(!under(&all, "/payments", "payments.create"), "it is carried out at once");
        assert!(!under(&named, "/x", "POST /x") && under(&all, "/x", "POST /x"));
    }

    #[test]
    fn unusable_operations_are_named() {
        let refuse = |list| operations(list).err().expect("it is refused");
        let op = Operation::new;
        assert_eq!(refuse(vec![op("", "POST /x")]), "operation \"\": an operation's name is empty");
        assert_eq!(refuse(vec![op("a", "POST /x"), op("a", "POST /y")]), "operation \"a\" is there twice");
        let not_a_route = "is not a method and a path, such as \"POST /payments\"";
        assert_eq!(refuse(vec![op("a", "/x")]), format!("operation \"a\": \"/x\" {not_a_route}"));
        assert_eq!(refuse(vec![op("a", "post /x")]), format!("operation \"a\": \"post /x\" {not_a_route}"));
        assert_eq!(refuse(vec![op("a", "POST x")]), format!("operation \"a\": \"POST x\" {not_a_route}"));
        assert_eq!(refuse(vec![op("a", "GET /x")]), "operation \"a\": GET is never a command");
        for (route, right) in [
            ("POST /users/:id", "\"/users/{id}\""),
            ("POST /files/*", "`{*rest}`"),
            ("ANY /x", "one rule for each method"),
            ("* /x", "one rule for each method"),
            ("POST ^/users/[0-9]+$", "regular expression"),
            ("POST /users/{id:int}", "`{id}`"),
        ] {
            let error = refuse(vec![op("a", route)]);
            assert!(error.starts_with("operation \"a\": ") && error.contains(right), "{route}: {error}");
        }
        assert!(refuse(vec![op("a", "POST /{x}"), op("b", "POST /{y}")]).starts_with("operation \"b\": "));
        let zero = op("a", "POST /x").with(|policy| policy.ttl = Duration::ZERO);
        assert_eq!(refuse(vec![zero]), "operation \"a\": `ttl` must be longer than zero");
        assert!(refuse(vec![op("a", "POST /x").exclude("x")]).starts_with("operation \"a\": \"x\": "));
    }
}
