//! Follows `$ref` within one document. Other documents are not read.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::document::{Node, excerpt, printable};
use super::error::AuditError;

/// The longest chain of references.
const MAX_HOPS: usize = 32;

/// A reference that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// It names another document.
    Elsewhere(String),
    /// It names a place that this document does not have.
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

/// A chain of references: its nodes, and the reference at its end if that cannot be followed.
pub(super) struct Chain<'d> {
    pub(super) nodes: Vec<Node<'d>>,
    pub(super) unseen: Option<Unseen>,
}

/// Follows the references of a node to their end; the node itself comes first.
///
/// # Errors
/// If the references form a circle.
pub(super) fn chain(node: Node<'_>) -> Result<Chain<'_>, AuditError> {
    let mut nodes = vec![node];
    let mut last = node;
    while let Some(reference) = last.get("$ref").and_then(Node::text) {
        if nodes.len() > MAX_HOPS {
            let first = printable(node.get("$ref").and_then(Node::text).unwrap_or_default());
            return Err(AuditError::at(
                node.line(),
                format!(
                    "the reference `{first}` does not end after {MAX_HOPS} others: does it go in a circle?"
                ),
            ));
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

/// Returns the node at the end of a chain of references: the node itself if it has none.
///
/// # Errors
/// If the references form a circle.
pub(super) fn follow(node: Node<'_>) -> Result<Result<Node<'_>, Unseen>, AuditError> {
    let Chain { nodes, unseen } = chain(node)?;
    Ok(match (unseen, nodes.last()) {
        (Some(unseen), _) => Err(unseen),
        (None, last) => Ok(last.copied().unwrap_or(node)),
    })
}

/// Finds the place that a reference names.
fn look_up<'d>(root: Node<'d>, reference: &str) -> Result<Result<Node<'d>, Unseen>, AuditError> {
    root.step(1 + reference.len())?;
    let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    // Since OpenAPI 3.2, a document can have a name of its own.
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
