//! Following `$ref` within one document. What stands in another one is not read, and never guessed.

use std::fmt;

use anyhow::bail;
use percent_encoding::percent_decode_str;

use super::document::{Node, excerpt, printable};

/// How many references may follow each other.
const MAX_HOPS: usize = 32;

/// A place that a reference names and that cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// In another document.
    Elsewhere(String),
    /// In this document, where it is not.
    Nowhere(String),
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere(reference) => write!(
                f,
                "`{}` is in another document, which is not read: bundle them into one first",
                printable(reference)
            ),
            Self::Nowhere(reference) => write!(f, "`{}` is not in the document", printable(reference)),
        }
    }
}

/// A node, what it refers to, what that refers to, and so on; and what could not be looked at in the end.
pub(super) struct Chain<'d> {
    pub(super) nodes: Vec<Node<'d>>,
    pub(super) unseen: Option<Unseen>,
}

/// Everything that this node refers to, itself first.
///
/// # Errors
/// If it goes in a circle.
pub(super) fn chain(node: Node<'_>) -> anyhow::Result<Chain<'_>> {
    let mut nodes = vec![node];
    let mut last = node;
    while let Some(reference) = last.get("$ref").and_then(Node::text) {
        if nodes.len() > MAX_HOPS {
            bail!(
                "line {}: the reference `{}` does not end after {MAX_HOPS} others: does it go in a circle?",
                node.line(),
                printable(node.get("$ref").and_then(Node::text).unwrap_or_default())
            );
        }
        match look_up(last.root(), reference)? {
            Ok(found) => {
                nodes.push(found);
                last = found;
            }
            Err(unseen) => return Ok(Chain { nodes, unseen: Some(unseen) }),
        }
    }
    Ok(Chain { nodes, unseen: None })
}

/// What this node means: itself, or what it refers to.
///
/// # Errors
/// If its references go in a circle.
pub(super) fn follow(node: Node<'_>) -> anyhow::Result<Result<Node<'_>, Unseen>> {
    let Chain { nodes, unseen } = chain(node)?;
    Ok(match (unseen, nodes.last()) {
        (Some(unseen), _) => Err(unseen),
        (None, last) => Ok(last.copied().unwrap_or(node)),
    })
}

/// The place that a reference names.
fn look_up<'d>(root: Node<'d>, reference: &str) -> anyhow::Result<Result<Node<'d>, Unseen>> {
    root.step(1 + reference.len())?;
    let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    // From OpenAPI 3.2 on, a document can have a name of its own.
    let own_name = root.get("$self").and_then(Node::text);
    if !document.is_empty() && Some(document) != own_name {
        return Ok(Err(Unseen::Elsewhere(excerpt(reference))));
    }
    let nowhere = || Ok(Err(Unseen::Nowhere(excerpt(reference))));
    let Ok(pointer) = percent_decode_str(fragment).decode_utf8() else { return nowhere() };
    let mut node = root;
    let mut tokens = pointer.split('/');
    // The empty pointer is the whole document; any other begins with a slash.
    if tokens.next() != Some("") {
        return nowhere();
    }
    for token in tokens {
        // In this order: `~01` is `~1`, and no slash.
        let name = token.replace("~1", "/").replace("~0", "~");
        let index = || token.parse().ok().filter(|index: &usize| index.to_string() == token);
        match node.get(&name).or_else(|| node.item(index()?)) {
            Some(next) => node = next,
            None => return nowhere(),
        }
    }
    Ok(Ok(node))
}
