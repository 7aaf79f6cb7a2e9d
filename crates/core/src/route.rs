//! A configured path such as `/accounts/{id}/payments`, in the same one form as the paths of requests. Pure.

mod foreign;

use std::fmt;

use thiserror::Error;

pub use foreign::{ForeignRoute, check_method, check_path};

use crate::path::{PathException, PathExceptions, PathRefusal, RequestPath, is_reserved, loose, spell};
use crate::policy::{Policy, Spelling};

/// A path with placeholders: `{name}` matches a part of one segment, `{*name}` all that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePath {
    text: String,
    loose: String,
    /// A path that the route matches.
    example: String,
    segments: Vec<Segment>,
    ends_in_slash: bool,
    needs: PathExceptions,
}

/// Reason why a text is no path of a route.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RouteError {
    /// The path is in the syntax of another program.
    #[error("{0}")]
    Foreign(ForeignRoute),
    /// The path has an unmatched brace.
    #[error("a placeholder is written `{{name}}`, or `{{*name}}` at the end")]
    Placeholder,
    /// The path has no form.
    #[error("{0}")]
    Path(PathRefusal),
    /// The path is reserved for Semel.
    #[error("paths below /.well-known/semel/ are Semel's own")]
    Reserved,
}

/// A segment of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// Any text between a prefix and a suffix.
    Any {
        before: String,
        after: String,
    },
    /// All text after a prefix.
    Rest {
        before: String,
    },
}

/// A part of a route's text.
enum RoutePiece<'a> {
    Literal(String),
    Placeholder(&'a str),
}

impl RoutePath {
    /// Parses a path of a route, with the exceptions that it needs itself.
    ///
    /// # Errors
    /// If it has no form.
    pub fn parse(text: &str) -> Result<RoutePath, RouteError> {
        check_path(text).map_err(RouteError::Foreign)?;
        let mut needs = PathExceptions::default();
        let mut pieces = split(text)?;
        for piece in &mut pieces {
            if let RoutePiece::Literal(literal) = piece {
                *literal = spell(literal, &mut needs).map_err(RouteError::Path)?.into_owned();
            }
        }
        let joined = |placeholder: &dyn Fn(usize, &str) -> String| -> String {
            let text = |(index, piece): (usize, &RoutePiece<'_>)| match piece {
                RoutePiece::Literal(literal) => literal.clone(),
                RoutePiece::Placeholder(name) => placeholder(index, name),
            };
            pieces.iter().enumerate().map(text).collect()
        };
        let example = joined(&|_, _| "x".to_owned());
        let read = RequestPath::read(&example).map_err(RouteError::Path)?;
        if read.needs().has(PathException::EmptySegment) {
            needs.add(PathException::EmptySegment);
        }
        if is_reserved(&example) {
            return Err(RouteError::Reserved);
        }
        let text = joined(&|_, name| format!("{{{name}}}"));
        let loose = loose_route(&joined(&|index, name| stand_in(index, name.starts_with('*')).to_string()));
        let path = text.strip_prefix('/').unwrap_or_default();
        let (path, ends_in_slash) =
            path.strip_suffix('/').map_or((path, path.is_empty()), |path| (path, true));
        let segments = if path.is_empty() { Vec::new() } else { path.split('/').map(segment).collect() };
        Ok(RoutePath { loose, example, segments, ends_in_slash, needs, text })
    }

    /// Returns the path in its one form.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the path without its trailing slash; `None` if it has none, or is nothing else. A request for
    /// it would be another path, or refused.
    pub fn without_slash(&self) -> Option<&str> {
        self.text.strip_suffix('/').filter(|rest| !rest.is_empty())
    }

    /// Returns the route as its most lenient reader has it, for matching with [`loose`] paths.
    pub fn loose(&self) -> &str {
        &self.loose
    }

    /// Returns the reason why the route would match nothing if only these exceptions were allowed.
    pub fn refused_by(&self, allow: PathExceptions) -> Option<PathRefusal> {
        self.needs.beyond(allow).map(PathRefusal::NotAllowed)
    }

    /// Returns true if a path may be taken for either of two different routes: they differ only by a trailing
    /// slash, letter case or encoding, and at least one does not declare such spellings `other` paths.
    pub fn is_confused_with(&self, policy: &Policy, other: &RoutePath, others_policy: &Policy) -> bool {
        let apart = |one: &RoutePath, policy: &Policy, other: &RoutePath| {
            one.judge(&other.example, policy.trailing_slash, policy.letter_case) == Ok(None)
        };
        // Routes that differ only by the names of their placeholders match the same paths, so there is no
        // confusion.
        self.example != other.example
            && self.loose == other.loose
            && !(apart(self, policy, other) && apart(other, others_policy, self))
    }

    /// Decides the meaning of a path that this route matches [loosely](Self::loose), but not exactly: the
    /// path in the route's spelling, or another path (`None`).
    ///
    /// # Errors
    /// The forbidden difference.
    pub fn judge(
        &self,
        path: &str,
        trailing_slash: Spelling,
        letter_case: Spelling,
    ) -> Result<Option<String>, Misspelled> {
        let Some(respelled) = self.respell(path) else { return Err(Misspelled::Encoding) };
        let without = |path: &str| path.strip_suffix('/').unwrap_or(path).to_owned();
        let other_slash = path.ends_with('/') != respelled.ends_with('/');
        let other_case = without(path) != without(&respelled);
        let slash = if other_slash { trailing_slash } else { Spelling::Same };
        let case = if other_case { letter_case } else { Spelling::Same };
        match (slash, case) {
            (Spelling::Refuse, _) => Err(Misspelled::TrailingSlash),
            (_, Spelling::Refuse) => Err(Misspelled::Case),
            (Spelling::Other, _) | (_, Spelling::Other) => Ok(None),
            (Spelling::Same, Spelling::Same) => Ok(Some(respelled)),
        }
    }

    /// Returns the path in the route's own spelling, if it differs only by the case of ASCII letters and a
    /// trailing slash.
    fn respell(&self, path: &str) -> Option<String> {
        let mut rest = path.strip_prefix('/')?;
        let mut respelled = String::with_capacity(path.len() + 1);
        for (index, segment) in self.segments.iter().enumerate() {
            respelled.push('/');
            if let Segment::Rest { before } = segment {
                let (found, rest) = rest.split_at_checked(before.len())?;
                respelled.push_str(before);
                respelled.push_str(rest);
                return found.eq_ignore_ascii_case(before).then_some(respelled);
            }
            let (found, after) = match rest.split_once('/') {
                Some((found, after)) => (found, Some(after)),
                None => (rest, None),
            };
            respelled.push_str(&segment.respell(found)?);
            match after {
                Some(after) => rest = after,
                None if index + 1 == self.segments.len() => rest = "",
                None => return None,
            }
        }
        if self.ends_in_slash {
            respelled.push('/');
        }
        rest.is_empty().then_some(respelled)
    }
}

impl fmt::Display for RoutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Segment {
    fn respell(&self, found: &str) -> Option<String> {
        match self {
            Segment::Literal(own) => found.eq_ignore_ascii_case(own).then(|| own.clone()),
            Segment::Any { before, after } => {
                let (first, rest) = found.split_at_checked(before.len())?;
                let (value, last) = rest.split_at_checked(rest.len().checked_sub(after.len())?)?;
                let same = first.eq_ignore_ascii_case(before) && last.eq_ignore_ascii_case(after);
                same.then(|| [before, value, after].concat())
            }
            Segment::Rest { .. } => None,
        }
    }
}

/// Difference of a path from a route that it does not match exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Misspelled {
    /// Only one of them ends in a slash.
    #[error("The path differs from a configured route by a slash at its end, which others may ignore.")]
    TrailingSlash,
    /// The letter case differs.
    #[error("The path differs from a configured route by upper and lower case, which others may ignore.")]
    Case,
    /// The percent-encoding differs.
    #[error("The path differs from a configured route by what is encoded in it, which others may ignore.")]
    Encoding,
}

fn split(text: &str) -> Result<Vec<RoutePiece<'_>>, RouteError> {
    let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let brace = &rest[at..];
        if let Some(after) = brace.strip_prefix("{{") {
            literal.push('{');
            rest = after;
        } else if let Some(after) = brace.strip_prefix("}}") {
            literal.push('}');
            rest = after;
        } else {
            let inside = brace.strip_prefix('{').ok_or(RouteError::Placeholder)?;
            let (name, after) = inside.split_once('}').ok_or(RouteError::Placeholder)?;
            let is_rest = name.starts_with('*');
            let plain = name.strip_prefix('*').unwrap_or(name);
            if plain.is_empty() || plain.contains(['{', '/', '*']) || (is_rest && !after.is_empty()) {
                return Err(RouteError::Placeholder);
            }
            pieces.push(RoutePiece::Literal(std::mem::take(&mut literal)));
            pieces.push(RoutePiece::Placeholder(name));
            rest = after;
        }
    }
    literal.push_str(rest);
    pieces.push(RoutePiece::Literal(literal));
    Ok(pieces)
}

fn segment(text: &str) -> Segment {
    let Some((before, rest)) = text.split_once('{') else { return Segment::Literal(text.to_owned()) };
    let (name, after) = rest.split_once('}').unwrap_or((rest, ""));
    let before = before.to_owned();
    if name.starts_with('*') {
        Segment::Rest { before }
    } else {
        Segment::Any { before, after: after.to_owned() }
    }
}

/// Private-use characters that replace placeholders while a route is made loose.
const STAND_INS: [std::ops::RangeInclusive<u32>; 2] = [0xF_0000..=0xF_FFFD, 0x10_0000..=0x10_FFFD];

fn stand_in(index: usize, is_rest: bool) -> char {
    let range = &STAND_INS[usize::from(is_rest)];
    let code = u32::try_from(index).map_or(*range.end(), |index| range.start() + index % 0xFFFE);
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn loose_route(with_stand_ins: &str) -> String {
    let written = |letter: char| match letter {
        '{' => "{{".to_owned(),
        '}' => "}}".to_owned(),
        one if STAND_INS[0].contains(&u32::from(one)) => {
            format!("{{p{}}}", u32::from(one) - STAND_INS[0].start())
        }
        rest if STAND_INS[1].contains(&u32::from(rest)) => "{*rest}".to_owned(),
        plain => plain.to_string(),
    };
    loose(with_stand_ins).chars().map(written).collect()
}
