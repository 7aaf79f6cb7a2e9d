//! From text to a tree. JSON is YAML, so that there is one reader for both.
//!
//! Nothing here calls itself, and everything has a bound: how deep a document is nested, how many nodes it has, and
//! how many members its merge keys copy. An alias costs no more than its name, since what it means is not copied.

use std::borrow::Cow;
use std::collections::HashMap;

use anyhow::{anyhow, bail, ensure};
use granit_parser::{Event, Parser, ScalarStyle};
use indexmap::map::Entry;

use super::document::{Document, Id, Member, Members, Stored, Value, printable};

const MAX_DEPTH: usize = 128;
/// The largest public documents have about a quarter of it.
const MAX_NODES: usize = 2_000_000;
const MAX_NAME_BYTES: usize = 4096;
/// Of YAML 1.1, and of nearly every reader since: `<<: *other` takes the members of the other object.
const MERGE: &str = "<<";

/// Reads the one document in this text.
///
/// # Errors
/// With the line and what is wrong there.
pub(super) fn read(text: &str) -> anyhow::Result<Document<'_>> {
    let mut tree = Tree::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker();
            anyhow!("line {}, column {}: {}", at.line(), at.col() + 1, printable(&error.info()))
        })?;
        tree.take(event, span.start.line())?;
    }
    let root = tree.root.ok_or_else(|| anyhow!("there is nothing in it"))?;
    Ok(Document::new(tree.nodes, root))
}

/// An object or a list whose end has not come yet.
struct Open<'a> {
    line: usize,
    /// 0 if nobody can refer to it.
    anchor: usize,
    content: Content<'a>,
}

enum Content<'a> {
    List(Vec<Id>),
    Object {
        members: Members<'a>,
        /// The name of the member that comes next, and its line.
        name: Option<(Name<'a>, usize)>,
        /// The objects whose members it takes.
        merged: Vec<Id>,
    },
}

enum Name<'a> {
    Member(Cow<'a, str>),
    Merge,
}

#[derive(Default)]
struct Tree<'a> {
    nodes: Vec<Stored<'a>>,
    open: Vec<Open<'a>>,
    /// What each anchor names, as soon as it is complete.
    anchors: HashMap<usize, Id>,
    root: Option<Id>,
    /// Nodes, and names of members, those that were merged too.
    count: usize,
}

impl<'a> Tree<'a> {
    fn take(&mut self, event: Event<'a>, line: usize) -> anyhow::Result<()> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                if !self.awaits_name() {
                    let id = self.store(line, anchor, Value::Scalar { text, plain })?;
                    return self.place(id, line);
                }
                if anchor != 0 {
                    self.store(line, anchor, Value::Scalar { text: text.clone(), plain })?;
                }
                self.name(text, plain, line)
            }
            Event::Alias(anchor) => {
                let Some(&id) = self.anchors.get(&anchor) else {
                    bail!("line {line}: the alias stands inside of what it names, which has no end");
                };
                match &self.nodes[id.0].value {
                    Value::Scalar { text, .. } if self.awaits_name() => {
                        let text = text.clone();
                        self.name(text, false, line)
                    }
                    _ => self.place(id, line),
                }
            }
            Event::SequenceStart(_, anchor, _) => self.begin(line, anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Object { members: Members::new(), name: None, merged: Vec::new() };
                self.begin(line, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::DocumentStart(..) => {
                ensure!(self.root.is_none(), "line {line}: a second document begins: there must be one");
                Ok(())
            }
            // Of what is left, nothing is part of the tree.
            _ => Ok(()),
        }
    }

    fn awaits_name(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Object { name: None, .. }, .. }))
    }

    fn count(&mut self, more: usize, line: usize) -> anyhow::Result<()> {
        self.count = self.count.saturating_add(more);
        ensure!(self.count <= MAX_NODES, "line {line}: there is too much in it: more than {MAX_NODES} nodes");
        Ok(())
    }

    fn store(&mut self, line: usize, anchor: usize, value: Value<'a>) -> anyhow::Result<Id> {
        self.count(1, line)?;
        let id = Id(self.nodes.len());
        self.nodes.push(Stored { line, value });
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        Ok(id)
    }

    /// The name of the next member.
    fn name(&mut self, text: Cow<'a, str>, plain: bool, line: usize) -> anyhow::Result<()> {
        self.count(weight(&text), line)?;
        ensure!(text.len() <= MAX_NAME_BYTES, "line {line}: a name of more than {MAX_NAME_BYTES} bytes");
        if let Some(Open { content: Content::Object { name, .. }, .. }) = self.open.last_mut() {
            let new = if plain && text == MERGE { Name::Merge } else { Name::Member(text) };
            *name = Some((new, line));
        }
        Ok(())
    }

    fn begin(&mut self, line: usize, anchor: usize, content: Content<'a>) -> anyhow::Result<()> {
        ensure!(self.open.len() < MAX_DEPTH, "line {line}: nested deeper than {MAX_DEPTH} levels");
        self.open.push(Open { line, anchor, content });
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let Some(Open { line, anchor, content }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Object { mut members, merged, .. } => {
                for source in merged {
                    self.merge(&mut members, source, line)?;
                }
                Value::Object(Box::new(members))
            }
        };
        let id = self.store(line, anchor, value)?;
        self.place(id, line)
    }

    /// Takes over what the object does not say itself, from an object or from a list of them, the first one first.
    fn merge(&mut self, members: &mut Members<'a>, source: Id, line: usize) -> anyhow::Result<()> {
        let sources = match &self.nodes[source.0].value {
            Value::List(items) => items.clone(),
            Value::Scalar { .. } | Value::Object(_) => vec![source],
        };
        for source in sources {
            let Value::Object(others) = &self.nodes[source.0].value else {
                bail!("line {line}: {MERGE} must name an object, or a list of objects");
            };
            let copied: usize = others.keys().map(|name| weight(name)).sum();
            for (name, member) in others.iter() {
                members.entry(name.clone()).or_insert(*member);
            }
            self.count(1 + copied, line)?;
        }
        Ok(())
    }

    /// Puts a complete node where it belongs.
    fn place(&mut self, id: Id, line: usize) -> anyhow::Result<()> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(id),
            Some(Content::List(items)) => items.push(id),
            Some(Content::Object { members, name, merged }) => match name.take() {
                Some((Name::Merge, _)) => merged.push(id),
                Some((Name::Member(name), line)) => match members.entry(name) {
                    Entry::Vacant(free) => {
                        free.insert(Member { id, line });
                    }
                    // Which one counts, readers do not agree about.
                    Entry::Occupied(taken) => bail!(
                        "line {line}: {:?} is there twice in one object, at line {} already",
                        printable(taken.key()),
                        taken.get().line
                    ),
                },
                None => bail!("line {line}: the name of a member must be a text"),
            },
        }
        Ok(())
    }
}

/// How many nodes the name of a member counts for. A long one may be copied by aliases.
fn weight(name: &str) -> usize {
    1 + name.len() / 16
}
