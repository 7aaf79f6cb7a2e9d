//! Finds the rule of a request's path, and puts the path into the one form that everything behind this sees.
//!
//! Invariant: a path that any reader may take for the route of a rule is matched by that rule, or refused, unless the rule says
//! that it is another path.

use std::borrow::Cow;
use std::collections::HashMap;

use http::Method;
use semel_core::Policy;
use semel_core::path::{PathExceptions, PathRefusal, RESERVED_PATH, RequestPath, is_reserved, loose};
use semel_core::route::{Misspelled, RoutePath};

/// Rules of type `T` by method and path.
pub(crate) struct Routes<T> {
    by_method: HashMap<Method, MethodRoutes<T>>,
}

/// The routes of one method.
struct MethodRoutes<T> {
    entries: Vec<RouteEntry<T>>,
    exact: matchit::Router<usize>,
    /// Groups of routes that one path may be taken for, by the most generous reading of it.
    loose: matchit::Router<usize>,
    groups: Vec<Vec<usize>>,
    /// Routes without a rule that allow something.
    passing: matchit::Router<PathExceptions>,
}

struct RouteEntry<T> {
    path: RoutePath,
    spelling: Policy,
    allow: PathExceptions,
    rule: T,
}

/// A path in its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlacedPath<'p, 't, T> {
    /// The path in its one form.
    pub(crate) path: Cow<'p, str>,
    /// The rule of its route, if it has one.
    pub(crate) rule: Option<&'t T>,
}

/// Reason to refuse a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Displaced {
    #[error(transparent)]
    NoForm(#[from] PathRefusal),
    #[error(transparent)]
    Misspelled(#[from] Misspelled),
    #[error("The path is Semel's own in another spelling.")]
    Reserved,
}

impl<T> Default for MethodRoutes<T> {
    fn default() -> MethodRoutes<T> {
        let (exact, loose, passing) =
            (matchit::Router::new(), matchit::Router::new(), matchit::Router::new());
        MethodRoutes { entries: Vec::new(), exact, loose, groups: Vec::new(), passing }
    }
}

impl<T> Default for Routes<T> {
    fn default() -> Routes<T> {
        Routes { by_method: HashMap::new() }
    }
}

impl<T> Routes<T> {
    /// Adds a route with its rule.
    ///
    /// # Errors
    /// If another route matches the same paths, or may be taken for this one.
    pub(crate) fn insert(
        &mut self,
        method: Method,
        path: RoutePath,
        policy: &Policy,
        allow: PathExceptions,
        rule: T,
    ) -> Result<(), String> {
        let routes = self.by_method.entry(method).or_default();
        let index = routes.entries.len();
        let confused = |entry: &&RouteEntry<T>| path.is_confused_with(policy, &entry.path, &entry.spelling);
        if let Some(other) = routes.entries.iter().find(confused) {
            return Err(format!(
                "{path} may be taken for {}: they differ by a slash at the end, by upper and lower case, or by what is \
                 encoded only, and not both say with `trailing_slash` or `letter_case` that these are other paths",
                other.path
            ));
        }
        routes.exact.insert(path.as_str(), index).map_err(|error| error.to_string())?;
        let entries = &routes.entries;
        let own =
            |group: &&mut Vec<usize>| group.iter().any(|other| entries[*other].path.loose() == path.loose());
        match routes.groups.iter_mut().find(own) {
            Some(group) => group.push(index),
            None => {
                routes.loose.insert(path.loose(), routes.groups.len()).map_err(|error| error.to_string())?;
                routes.groups.push(vec![index]);
            }
        }
        routes.entries.push(RouteEntry { path, spelling: policy.clone(), allow, rule });
        Ok(())
    }

    /// Adds a route without a rule, whose paths may have these exceptions.
    ///
    /// # Errors
    /// If another such route matches the same paths.
    pub(crate) fn pass(
        &mut self,
        method: Method,
        path: &RoutePath,
        allow: PathExceptions,
    ) -> Result<(), String> {
        let routes = self.by_method.entry(method).or_default();
        routes.passing.insert(path.as_str(), allow).map_err(|error| error.to_string())
    }

    /// Finds the place of a path as it was sent, without its query.
    pub(crate) fn place<'p>(
        &self,
        method: &Method,
        path: &'p str,
    ) -> Result<PlacedPath<'p, '_, T>, Displaced> {
        let form = RequestPath::read(path)?;
        if is_reserved(form.as_str()) {
            let own = form.as_str().starts_with(RESERVED_PATH) && form.needs().is_empty();
            return match own {
                true => Ok(PlacedPath { path: form.admit(PathExceptions::default())?, rule: None }),
                false => Err(Displaced::Reserved),
            };
        }
        let Some(routes) = self.by_method.get(method) else {
            return Ok(PlacedPath { path: form.admit(PathExceptions::default())?, rule: None });
        };
        let exact = routes.exact.at(form.as_str()).ok().map(|found| *found.value);
        let allowed = match exact {
            Some(index) => routes.entries[index].allow,
            None => routes.passing.at(form.as_str()).map(|found| *found.value).unwrap_or_default(),
        };
        let path = form.admit(allowed)?;
        let read_loosely = loose(&path);
        let Ok(found) = routes.loose.at(&read_loosely) else { return Ok(routes.at(path, exact)) };
        let candidates = &routes.groups[*found.value];
        if exact.is_some_and(|exact| candidates.contains(&exact)) {
            return Ok(routes.at(path, exact));
        }
        for index in candidates {
            let RouteEntry { path: route, spelling, .. } = &routes.entries[*index];
            if let Some(respelled) = route.judge(&path, spelling.trailing_slash, spelling.letter_case)? {
                return Ok(routes.at(Cow::Owned(respelled), Some(*index)));
            }
        }
        Ok(routes.at(path, exact))
    }
}

impl<T> MethodRoutes<T> {
    fn at<'p>(&self, path: Cow<'p, str>, index: Option<usize>) -> PlacedPath<'p, '_, T> {
        PlacedPath { path, rule: index.map(|index| &self.entries[index].rule) }
    }
}
