//! Which operations a document describes, and which of them change state.

use anyhow::{Context, bail, ensure};
use http::Method;

use super::document::{Node, printable};
use super::reference::{self, Unseen};

/// How many operations may be listed.
const MAX_OPERATIONS: usize = 10_000;

/// The members of a path that are methods, whatever the case they are written in.
const METHODS: [&str; 9] = ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "QUERY"];
/// Members with operations of other methods: of OpenAPI 3.2, and of its registry for those before it.
const OTHER_METHODS: [&str; 2] = ["additionalOperations", "x-oai-additionalOperations"];
/// Registered methods beyond RFC 9110 that only read.
const SAFE_EXTENSIONS: [&str; 4] = ["PROPFIND", "QUERY", "REPORT", "SEARCH"];

/// What a method says about the need for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only reads.
    Safe,
    /// It changes state, and doing it twice is defined to be the same as once.
    Idempotent,
    /// Doing it twice may be twice.
    Command,
}

impl Kind {
    pub(super) fn of(method: &str) -> Kind {
        let Ok(method) = Method::from_bytes(method.as_bytes()) else { return Kind::Command };
        if semel_http::is_command(&method) {
            Kind::Command
        } else if method.is_safe() || method == Method::CONNECT || SAFE_EXTENSIONS.contains(&method.as_str())
        {
            Kind::Safe
        } else {
            Kind::Idempotent
        }
    }
}

/// One method of one path.
#[derive(Debug)]
pub(super) struct Operation<'d> {
    pub(super) method: &'d str,
    pub(super) path: &'d str,
    pub(super) node: Node<'d>,
    /// The description of its path, and those which that refers to: what comes first, counts.
    pub(super) path_items: Vec<Node<'d>>,
}

/// A path whose operations, or some of them, cannot be looked at.
#[derive(Debug)]
pub(super) struct UnseenPath<'d> {
    pub(super) path: &'d str,
    pub(super) line: usize,
    pub(super) unseen: Unseen,
}

/// Everything under `paths`.
#[derive(Debug)]
pub(super) struct Paths<'d> {
    pub(super) version: &'d str,
    pub(super) operations: Vec<Operation<'d>>,
    pub(super) unseen: Vec<UnseenPath<'d>>,
}

/// Lists the operations of a document, in its order.
///
/// # Errors
/// If it is not a description in OpenAPI 3 or Swagger 2.0, or is broken.
pub(super) fn list(root: Node<'_>) -> anyhow::Result<Paths<'_>> {
    let version = version(root)?;
    let paths = root.get("paths").with_context(|| {
        let version = printable(version);
        format!("it has no `paths`: it is OpenAPI {version}, but describes no endpoint that could be audited")
    })?;
    ensure!(paths.is_object() || paths.is_null(), "line {}: `paths` is not an object", paths.line());
    let mut found = Paths { version, operations: Vec::new(), unseen: Vec::new() };
    for (path, item) in paths.members()? {
        if path.starts_with("x-") {
            continue;
        }
        let shown = printable(path);
        ensure!(item.is_object() || item.is_null(), "line {}: {shown:?} is not an object", item.line());
        let reference::Chain { nodes, unseen } = reference::chain(item)?;
        list_path(&mut found.operations, path, &nodes)?;
        ensure!(
            found.operations.len() + found.unseen.len() <= MAX_OPERATIONS,
            "line {}: there are more than {MAX_OPERATIONS} operations",
            item.line()
        );
        found.unseen.extend(unseen.map(|unseen| UnseenPath { path, line: item.line(), unseen }));
    }
    Ok(found)
}

/// The version, if it is one that can be read.
fn version(root: Node<'_>) -> anyhow::Result<&str> {
    if !root.is_object() {
        bail!("it is not a description in OpenAPI: it is not even an object");
    }
    if let Some(version) = root.get("swagger").and_then(Node::text) {
        ensure!(version == "2.0", "it is Swagger {}: only 2.0 is understood", printable(version));
        return Ok(version);
    }
    let version = root.get("openapi").and_then(Node::text).context(
        "it is not a description in OpenAPI: it has no member `openapi` or `swagger` with a version",
    )?;
    let known = ["3.0", "3.1", "3.2"].iter().any(|known| {
        version.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    ensure!(known, "it is OpenAPI {}: only 3.0, 3.1 and 3.2 are understood", printable(version));
    Ok(version)
}

fn list_path<'d>(
    operations: &mut Vec<Operation<'d>>,
    path: &'d str,
    path_items: &[Node<'d>],
) -> anyhow::Result<()> {
    let first = operations.len();
    let mut add = |method: &'d str, node: Node<'d>| -> anyhow::Result<()> {
        ensure!(
            node.is_object() || node.is_null(),
            "line {}: {} {} is not an object",
            node.line(),
            printable(method),
            printable(path)
        );
        // What a path says itself counts before what it refers to.
        let known = operations[first..].iter().any(|operation| operation.method == method);
        node.step(operations.len() - first)?;
        if !known {
            operations.push(Operation { method, path, node, path_items: path_items.to_vec() });
        }
        ensure!(operations.len() <= MAX_OPERATIONS, "there are more than {MAX_OPERATIONS} operations");
        Ok(())
    };
    for item in path_items {
        for (name, node) in item.members()? {
            if let Some(method) = METHODS.iter().find(|method| method.eq_ignore_ascii_case(name)) {
                add(method, node)?;
            } else if OTHER_METHODS.contains(&name) {
                for (method, node) in node.members()? {
                    add(method, node)?;
                }
            }
        }
    }
    Ok(())
}
