//! A document as a tree: objects, lists and scalars, each with its line. `reader` builds it; the other modules read it.
//!
//! A node that YAML aliases share is stored once, but a walk can visit it many times, and so can a walk that follows
//! references. Every step of a walk is counted, and [`MAX_STEPS`] ends the audit with an error.

use std::borrow::Cow;
use std::cell::Cell;

use indexmap::IndexMap;

use super::error::AuditError;

/// The most members, items and bytes of references that one audit visits.
const MAX_STEPS: usize = 20_000_000;
/// The length of an excerpt of the document.
const MAX_EXCERPT_CHARS: usize = 200;

/// The index of a node in its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(pub(super) usize);

/// The value of a node.
#[derive(Debug)]
pub(super) enum NodeValue<'a> {
    /// A text, a number, a boolean or null.
    Scalar {
        text: Cow<'a, str>,
        /// True for a scalar without quotes, which may be something else than text.
        plain: bool,
    },
    /// A list of nodes.
    List(Vec<NodeId>),
    /// An object; boxed, since most nodes are scalars.
    Object(Box<Members<'a>>),
}

/// The members of an object, in the order of the document.
pub(super) type Members<'a> = IndexMap<Cow<'a, str>, ObjectMember>;

/// A member of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectMember {
    pub(super) id: NodeId,
    /// The line of its name.
    pub(super) line: usize,
}

/// A node as its document stores it.
#[derive(Debug)]
pub(super) struct StoredNode<'a> {
    pub(super) line: usize,
    pub(super) value: NodeValue<'a>,
}

/// A document: its nodes, and the steps that walks through it have taken.
#[derive(Debug)]
pub(super) struct Document<'a> {
    nodes: Vec<StoredNode<'a>>,
    root: NodeId,
    steps: Cell<usize>,
}

impl<'a> Document<'a> {
    /// Makes a document of these nodes.
    pub(super) fn new(nodes: Vec<StoredNode<'a>>, root: NodeId) -> Document<'a> {
        Document { nodes, root, steps: Cell::new(0) }
    }

    /// Returns the root of the document.
    pub(super) fn root(&self) -> Node<'_> {
        Node { document: self, id: self.root, line: self.nodes[self.root.0].line }
    }
}

/// One place in a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'d> {
    document: &'d Document<'d>,
    id: NodeId,
    line: usize,
}

impl<'d> Node<'d> {
    fn stored(self) -> &'d StoredNode<'d> {
        &self.document.nodes[self.id.0]
    }

    fn member(self, member: &ObjectMember) -> Node<'d> {
        Node { document: self.document, id: member.id, line: member.line }
    }

    fn listed(self, id: NodeId) -> Node<'d> {
        Node { document: self.document, id, line: self.document.nodes[id.0].line }
    }

    /// Returns the root of the document.
    pub(super) fn root(self) -> Node<'d> {
        self.document.root()
    }

    /// Returns the line of the node, or of its name if it is a member; 1 is the first line.
    pub(super) fn line(self) -> usize {
        self.line
    }

    /// Returns the member of that name, if this is an object that has it.
    pub(super) fn get(self, name: &str) -> Option<Node<'d>> {
        match &self.stored().value {
            NodeValue::Object(members) => members.get(name).map(|member| self.member(member)),
            NodeValue::Scalar { .. } | NodeValue::List(_) => None,
        }
    }

    /// Returns the item at that index, if this is a list that has it.
    pub(super) fn item(self, index: usize) -> Option<Node<'d>> {
        match &self.stored().value {
            NodeValue::List(items) => items.get(index).map(|id| self.listed(*id)),
            NodeValue::Scalar { .. } | NodeValue::Object(_) => None,
        }
    }

    /// Returns the members of an object in the order of the document.
    pub(super) fn members(self) -> Result<Vec<(&'d str, Node<'d>)>, AuditError> {
        match &self.stored().value {
            NodeValue::Object(members) => {
                self.step(members.len())?;
                Ok(members.iter().map(|(name, member)| (name.as_ref(), self.member(member))).collect())
            }
            NodeValue::Scalar { .. } | NodeValue::List(_) => Ok(Vec::new()),
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(self) -> Result<Vec<Node<'d>>, AuditError> {
        match &self.stored().value {
            NodeValue::List(items) => {
                self.step(items.len())?;
                Ok(items.iter().map(|id| self.listed(*id)).collect())
            }
            NodeValue::Scalar { .. } | NodeValue::Object(_) => Ok(Vec::new()),
        }
    }

    /// Returns the text of a scalar, which may be a number or a boolean.
    pub(super) fn text(self) -> Option<&'d str> {
        match &self.stored().value {
            NodeValue::Scalar { text, .. } => Some(text),
            NodeValue::List(_) | NodeValue::Object(_) => None,
        }
    }

    /// Returns whether this is an object.
    pub(super) fn is_object(self) -> bool {
        matches!(self.stored().value, NodeValue::Object(_))
    }

    /// Returns whether this is one of these words of YAML, and not a quoted text that looks like one.
    fn is_word(self, words: &[&str]) -> bool {
        match &self.stored().value {
            NodeValue::Scalar { text, plain } => *plain && words.contains(&text.as_ref()),
            NodeValue::List(_) | NodeValue::Object(_) => false,
        }
    }

    /// Returns whether this is the boolean true.
    pub(super) fn is_true(self) -> bool {
        self.is_word(&["true", "True", "TRUE"])
    }

    /// Returns whether this is the boolean false.
    pub(super) fn is_false(self) -> bool {
        self.is_word(&["false", "False", "FALSE"])
    }

    /// Returns whether this is null, which is also the value of `name:` alone.
    pub(super) fn is_null(self) -> bool {
        self.is_word(&["", "~", "null", "Null", "NULL"])
    }

    /// Counts steps of a walk.
    ///
    /// # Errors
    /// If the audit has taken more than [`MAX_STEPS`].
    pub(super) fn step(self, steps: usize) -> Result<(), AuditError> {
        let steps = self.document.steps.get().saturating_add(steps);
        self.document.steps.set(steps);
        AuditError::unless(steps <= MAX_STEPS, self.line(), || {
            format!("gave up after {MAX_STEPS} steps: the document refers to large parts of itself too often")
        })
    }
}

/// Returns the beginning of a text of the document.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the beginning of a text of the document, safe for a terminal.
pub(super) fn printable(text: &str) -> String {
    crate::text::printable(&excerpt(text))
}
