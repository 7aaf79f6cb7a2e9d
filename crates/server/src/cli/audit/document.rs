//! A document as a tree: objects, lists and scalars, each with its line. `reader` builds it, everybody else looks.
//!
//! What several places share, by an alias of YAML, is kept once. A walk can still meet it many times, and so can one
//! that follows references: walks are counted, and end with an error before they take long.

use std::borrow::Cow;
use std::cell::Cell;

use anyhow::ensure;
use indexmap::IndexMap;

/// How many members, items and bytes of references one audit may look at.
const MAX_STEPS: usize = 20_000_000;
/// How much is shown of a text of the document.
const MAX_EXCERPT_CHARS: usize = 200;

/// Where a node is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) usize);

#[derive(Debug)]
pub(super) enum Value<'a> {
    /// `plain` says that it is not quoted, and may be something else than text.
    Scalar {
        text: Cow<'a, str>,
        plain: bool,
    },
    List(Vec<Id>),
    /// Boxed, since most nodes are scalars.
    Object(Box<Members<'a>>),
}

/// The members of an object, in the order of the document.
pub(super) type Members<'a> = IndexMap<Cow<'a, str>, Member>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) id: Id,
    /// Where its name stands.
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Stored<'a> {
    pub(super) line: usize,
    pub(super) value: Value<'a>,
}

/// A whole document.
#[derive(Debug)]
pub(super) struct Document<'a> {
    nodes: Vec<Stored<'a>>,
    root: Id,
    steps: Cell<usize>,
}

impl<'a> Document<'a> {
    pub(super) fn new(nodes: Vec<Stored<'a>>, root: Id) -> Document<'a> {
        Document { nodes, root, steps: Cell::new(0) }
    }

    pub(super) fn root(&self) -> Node<'_> {
        Node { document: self, id: self.root, line: self.nodes[self.root.0].line }
    }
}

/// One place in a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'d> {
    document: &'d Document<'d>,
    id: Id,
    line: usize,
}

impl<'d> Node<'d> {
    fn stored(self) -> &'d Stored<'d> {
        &self.document.nodes[self.id.0]
    }

    fn member(self, member: &Member) -> Node<'d> {
        Node { document: self.document, id: member.id, line: member.line }
    }

    fn listed(self, id: Id) -> Node<'d> {
        Node { document: self.document, id, line: self.document.nodes[id.0].line }
    }

    pub(super) fn root(self) -> Node<'d> {
        self.document.root()
    }

    /// Where it begins, with its name if it has one; 1 is the first line.
    pub(super) fn line(self) -> usize {
        self.line
    }

    /// The member of that name, if this is an object that has it.
    pub(super) fn get(self, name: &str) -> Option<Node<'d>> {
        match &self.stored().value {
            Value::Object(members) => members.get(name).map(|member| self.member(member)),
            Value::Scalar { .. } | Value::List(_) => None,
        }
    }

    /// The item at that index, if this is a list that has it.
    pub(super) fn item(self, index: usize) -> Option<Node<'d>> {
        match &self.stored().value {
            Value::List(items) => items.get(index).map(|id| self.listed(*id)),
            Value::Scalar { .. } | Value::Object(_) => None,
        }
    }

    /// The members of an object, as the document orders them.
    pub(super) fn members(self) -> anyhow::Result<Vec<(&'d str, Node<'d>)>> {
        match &self.stored().value {
            Value::Object(members) => {
                self.step(members.len())?;
                Ok(members.iter().map(|(name, member)| (name.as_ref(), self.member(member))).collect())
            }
            Value::Scalar { .. } | Value::List(_) => Ok(Vec::new()),
        }
    }

    /// The items of a list.
    pub(super) fn items(self) -> anyhow::Result<Vec<Node<'d>>> {
        match &self.stored().value {
            Value::List(items) => {
                self.step(items.len())?;
                Ok(items.iter().map(|id| self.listed(*id)).collect())
            }
            Value::Scalar { .. } | Value::Object(_) => Ok(Vec::new()),
        }
    }

    /// The text of a scalar: of a number or a boolean, too.
    pub(super) fn text(self) -> Option<&'d str> {
        match &self.stored().value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Object(_) => None,
        }
    }

    pub(super) fn is_object(self) -> bool {
        matches!(self.stored().value, Value::Object(_))
    }

    /// Whether it is one of these words of YAML, and not a text that looks like it.
    fn is_word(self, words: &[&str]) -> bool {
        match &self.stored().value {
            Value::Scalar { text, plain } => *plain && words.contains(&text.as_ref()),
            Value::List(_) | Value::Object(_) => false,
        }
    }

    pub(super) fn is_true(self) -> bool {
        self.is_word(&["true", "True", "TRUE"])
    }

    pub(super) fn is_false(self) -> bool {
        self.is_word(&["false", "False", "FALSE"])
    }

    /// Nothing at all, which is what `name:` alone says.
    pub(super) fn is_null(self) -> bool {
        self.is_word(&["", "~", "null", "Null", "NULL"])
    }

    /// Counts steps of a walk.
    ///
    /// # Errors
    /// If the audit has taken too many.
    pub(super) fn step(self, steps: usize) -> anyhow::Result<()> {
        let steps = self.document.steps.get().saturating_add(steps);
        self.document.steps.set(steps);
        ensure!(
            steps <= MAX_STEPS,
            "line {}: gave up after {MAX_STEPS} steps: the document refers to large parts of itself too often",
            self.line()
        );
        Ok(())
    }
}

/// A text of the document, cut short.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text of the document, cut short, that cannot steer a terminal.
pub(super) fn printable(text: &str) -> String {
    crate::cli::printable(&excerpt(text))
}
