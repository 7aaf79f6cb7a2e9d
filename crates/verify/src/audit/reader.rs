//! Reads the text of a document into a tree. JSON is YAML, so one reader serves both.
//!
//! The reader does not recurse. The nesting, the number of nodes and the members that merge keys copy are bounded. An alias
//! costs no more than its name, since its node is not copied.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};
use indexmap::map::Entry;

use super::document::{Document, Members, NodeId, NodeValue, ObjectMember, StoredNode, printable};
use super::error::AuditError;

/// The deepest nesting.
const MAX_DEPTH: usize = 128;
/// The most nodes. The largest public documents have about a quarter of it.
const MAX_NODES: usize = 2_000_000;
/// The longest name of a member.
const MAX_NAME_BYTES: usize = 4096;
/// The merge key of YAML 1.1, which most readers still know: `<<: *other` takes the members of the other object.
const MERGE: &str = "<<";

/// Reads the one document in this text.
///
/// # Errors
/// If the text is not one document within the bounds; the error names the line.
pub(super) fn read(text: &str) -> Result<Document<'_>, AuditError> {
    let mut tree = Tree::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker();
            AuditError::Syntax { line: at.line(), column: at.col() + 1, why: printable(&error.info()) }
        })?;
        tree.take(event, span.start.line())?;
    }
    let root = tree.root.ok_or_else(|| AuditError::document("there is nothing in it"))?;
    Ok(Document::new(tree.nodes, root))
}

/// An object or a list before its end is read.
struct OpenNode<'a> {
    line: usize,
    /// The anchor; 0 if there is none.
    anchor: usize,
    content: OpenContent<'a>,
}

/// The content of an open node so far.
enum OpenContent<'a> {
    List(Vec<NodeId>),
    Object {
        members: Members<'a>,
        /// The name of the next member, and its line.
        name: Option<(MemberName<'a>, usize)>,
        /// The objects whose members this one takes over.
        merged: Vec<NodeId>,
    },
}

/// The name of a member, or the merge key.
enum MemberName<'a> {
    Member(Cow<'a, str>),
    Merge,
}

/// A document under construction.
#[derive(Default)]
struct Tree<'a> {
    nodes: Vec<StoredNode<'a>>,
    open: Vec<OpenNode<'a>>,
    /// The node of each anchor, once it is complete.
    anchors: HashMap<usize, NodeId>,
    root: Option<NodeId>,
    /// The nodes and the names of members so far, merged ones included.
    count: usize,
}

impl<'a> Tree<'a> {
    /// Takes one event of the parser.
    fn take(&mut self, event: Event<'a>, line: usize) -> Result<(), AuditError> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                if !self.awaits_name() {
                    let id = self.store(line, anchor, NodeValue::Scalar { text, plain })?;
                    return self.place(id, line);
                }
                if anchor != 0 {
                    self.store(line, anchor, NodeValue::Scalar { text: text.clone(), plain })?;
                }
                self.name(text, plain, line)
            }
            Event::Alias(anchor) => {
                let Some(&id) = self.anchors.get(&anchor) else {
                    return Err(AuditError::at(
                        line,
                        "the alias stands inside of what it names, which has no end",
                    ));
                };
                match &self.nodes[id.0].value {
                    NodeValue::Scalar { text, .. } if self.awaits_name() => {
                        let text = text.clone();
                        self.name(text, false, line)
                    }
                    _ => self.place(id, line),
                }
            }
            Event::SequenceStart(_, anchor, _) => self.begin(line, anchor, OpenContent::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let content = OpenContent::Object { members: Members::new(), name: None, merged: Vec::new() };
                self.begin(line, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::DocumentStart(..) => AuditError::unless(self.root.is_none(), line, || {
                "a second document begins: there must be one".to_owned()
            }),
            // Other events are not part of the tree.
            _ => Ok(()),
        }
    }

    /// Returns whether the next scalar is the name of a member.
    fn awaits_name(&self) -> bool {
        matches!(self.open.last(), Some(OpenNode { content: OpenContent::Object { name: None, .. }, .. }))
    }

    /// Counts nodes against the bound.
    fn count(&mut self, more: usize, line: usize) -> Result<(), AuditError> {
        self.count = self.count.saturating_add(more);
        AuditError::unless(self.count <= MAX_NODES, line, || {
            format!("there is too much in it: more than {MAX_NODES} nodes")
        })
    }

    /// Stores a complete node.
    fn store(&mut self, line: usize, anchor: usize, value: NodeValue<'a>) -> Result<NodeId, AuditError> {
        self.count(1, line)?;
        let id = NodeId(self.nodes.len());
        self.nodes.push(StoredNode { line, value });
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        Ok(id)
    }

    /// Takes the name of the next member.
    fn name(&mut self, text: Cow<'a, str>, plain: bool, line: usize) -> Result<(), AuditError> {
        self.count(weight(&text), line)?;
        AuditError::unless(text.len() <= MAX_NAME_BYTES, line, || {
            format!("a name of more than {MAX_NAME_BYTES} bytes")
        })?;
        if let Some(OpenNode { content: OpenContent::Object { name, .. }, .. }) = self.open.last_mut() {
            let new = if plain && text == MERGE { MemberName::Merge } else { MemberName::Member(text) };
            *name = Some((new, line));
        }
        Ok(())
    }

    /// Begins an object or a list.
    fn begin(&mut self, line: usize, anchor: usize, content: OpenContent<'a>) -> Result<(), AuditError> {
        AuditError::unless(self.open.len() < MAX_DEPTH, line, || {
            format!("nested deeper than {MAX_DEPTH} levels")
        })?;
        self.open.push(OpenNode { line, anchor, content });
        Ok(())
    }

    /// Completes the innermost object or list.
    fn end(&mut self) -> Result<(), AuditError> {
        let Some(OpenNode { line, anchor, content }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            OpenContent::List(items) => NodeValue::List(items),
            OpenContent::Object { mut members, merged, .. } => {
                for source in merged {
                    self.merge(&mut members, source, line)?;
                }
                NodeValue::Object(Box::new(members))
            }
        };
        let id = self.store(line, anchor, value)?;
        self.place(id, line)
    }

    /// Takes over the members that the object lacks, from another object or from a list of objects in their order.
    fn merge(&mut self, members: &mut Members<'a>, source: NodeId, line: usize) -> Result<(), AuditError> {
        let sources = match &self.nodes[source.0].value {
            NodeValue::List(items) => items.clone(),
            NodeValue::Scalar { .. } | NodeValue::Object(_) => vec![source],
        };
        for source in sources {
            let NodeValue::Object(others) = &self.nodes[source.0].value else {
                return Err(AuditError::at(
                    line,
                    format!("{MERGE} must name an object, or a list of objects"),
                ));
            };
            let copied: usize = others.keys().map(|name| weight(name)).sum();
            for (name, member) in others.iter() {
                members.entry(name.clone()).or_insert(*member);
            }
            self.count(1 + copied, line)?;
        }
        Ok(())
    }

    /// Adds a complete node to the object or list around it.
    fn place(&mut self, id: NodeId, line: usize) -> Result<(), AuditError> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(id),
            Some(OpenContent::List(items)) => items.push(id),
            Some(OpenContent::Object { members, name, merged }) => match name.take() {
                Some((MemberName::Merge, _)) => merged.push(id),
                Some((MemberName::Member(name), line)) => match members.entry(name) {
                    Entry::Vacant(free) => {
                        free.insert(ObjectMember { id, line });
                    }
                    // Readers do not agree about which of the two counts.
                    Entry::Occupied(taken) => {
                        let (name, first) = (printable(taken.key()), taken.get().line);
                        let why = format!("{name:?} is there twice in one object, at line {first} already");
                        return Err(AuditError::at(line, why));
                    }
                },
                None => return Err(AuditError::at(line, "the name of a member must be a text")),
            },
        }
        Ok(())
    }
}

/// Returns the number of nodes that a name counts for. Aliases may copy a long one many times.
fn weight(name: &str) -> usize {
    1 + name.len() / 16
}
