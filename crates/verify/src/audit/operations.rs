//! Lists the operations of a document, and tells the methods that change state from the others.

use http::Method;

use super::document::{Node, printable};
use super::error::AuditError;
use super::reference::{self, Unseen};

/// The most operations of one document.
const MAX_OPERATIONS: usize = 10_000;

/// The members of a path that are methods, in any case.
const METHODS: [&str; 9] = ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "QUERY"];
/// Members with operations of other methods: in OpenAPI 3.2, and in its registry for earlier versions.
const OTHER_METHODS: [&str; 2] = ["additionalOperations", "x-oai-additionalOperations"];
/// Methods beyond RFC 9110 that IANA's registry calls safe.
const SAFE_EXTENSIONS: [&str; 4] = ["PROPFIND", "QUERY", "REPORT", "SEARCH"];
/// Methods beyond RFC 9110 that IANA's registry calls idempotent, and not safe.
const IDEMPOTENT_EXTENSIONS: [&str; 22] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PROPPATCH",
    "REBIND",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
];

/// The kind of a method, which decides about the need for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MethodKind {
    /// The method only reads.
    Safe,
    /// The method changes state, and twice is the same as once by definition.
    Idempotent,
    /// The method may take effect each time. Methods outside the registry count as such.
    Command,
}

impl MethodKind {
    /// Returns the kind of a method by RFC 9110 and IANA's registry.
    pub(super) fn of(method: &str) -> MethodKind {
        let Ok(method) = Method::from_bytes(method.as_bytes()) else { return MethodKind::Command };
        if method.is_safe() || method == Method::CONNECT || SAFE_EXTENSIONS.contains(&method.as_str()) {
            MethodKind::Safe
        } else if method.is_idempotent() || IDEMPOTENT_EXTENSIONS.contains(&method.as_str()) {
            MethodKind::Idempotent
        } else {
            MethodKind::Command
        }
    }
}

/// One method of one path.
#[derive(Debug)]
pub(super) struct ListedOperation<'d> {
    pub(super) method: &'d str,
    pub(super) path: &'d str,
    pub(super) node: Node<'d>,
    /// The description of its path, and those that it refers to; the first one has precedence.
    pub(super) path_items: Vec<Node<'d>>,
}

/// A path of which some operations are out of reach.
#[derive(Debug)]
pub(super) struct UnseenPath<'d> {
    pub(super) path: &'d str,
    pub(super) line: usize,
    pub(super) unseen: Unseen,
}

/// The operations under `paths`.
#[derive(Debug)]
pub(super) struct Paths<'d> {
    pub(super) version: &'d str,
    pub(super) operations: Vec<ListedOperation<'d>>,
    pub(super) unseen: Vec<UnseenPath<'d>>,
}

/// Lists the operations of a document, in its order.
///
/// # Errors
/// If it is not a description in OpenAPI 3 or Swagger 2.0, or is broken.
pub(super) fn list(root: Node<'_>) -> Result<Paths<'_>, AuditError> {
    let version = version(root)?;
    let paths = root.get("paths").ok_or_else(|| {
        let version = printable(version);
        AuditError::document(format!(
            "it has no `paths`: it is OpenAPI {version}, but describes no endpoint that could be audited"
        ))
    })?;
    expect_object(paths, || "`paths`".to_owned())?;
    let mut found = Paths { version, operations: Vec::new(), unseen: Vec::new() };
    for (path, item) in paths.members()? {
        if path.starts_with("x-") {
            continue;
        }
        expect_object(item, || format!("{:?}", printable(path)))?;
        let reference::Chain { nodes, unseen } = reference::chain(item)?;
        list_path(&mut found.operations, path, &nodes)?;
        let listed = found.operations.len() + found.unseen.len();
        AuditError::unless(listed <= MAX_OPERATIONS, item.line(), too_many)?;
        found.unseen.extend(unseen.map(|unseen| UnseenPath { path, line: item.line(), unseen }));
    }
    Ok(found)
}

/// Returns the reason against a document with too many operations.
fn too_many() -> String {
    format!("there are more than {MAX_OPERATIONS} operations")
}

/// Refuses a node that is neither an object nor empty.
fn expect_object(node: Node<'_>, name: impl FnOnce() -> String) -> Result<(), AuditError> {
    let is_one = node.is_object() || node.is_null();
    AuditError::unless(is_one, node.line(), || format!("{} is not an object", name()))
}

/// Returns the version of OpenAPI, if it is one that can be read.
fn version(root: Node<'_>) -> Result<&str, AuditError> {
    if !root.is_object() {
        return Err(AuditError::document("it is not a description in OpenAPI: it is not even an object"));
    }
    if let Some(version) = root.get("swagger").and_then(Node::text) {
        if version != "2.0" {
            let version = printable(version);
            return Err(AuditError::document(format!("it is Swagger {version}: only 2.0 is understood")));
        }
        return Ok(version);
    }
    let version = root.get("openapi").and_then(Node::text).ok_or_else(|| {
        AuditError::document(
            "it is not a description in OpenAPI: it has no member `openapi` or `swagger` with a version",
        )
    })?;
    let known = ["3.0", "3.1", "3.2"].iter().any(|known| {
        version.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    if !known {
        let version = printable(version);
        return Err(AuditError::document(format!(
            "it is OpenAPI {version}: only 3.0, 3.1 and 3.2 are understood"
        )));
    }
    Ok(version)
}

/// Lists the operations of one path.
fn list_path<'d>(
    operations: &mut Vec<ListedOperation<'d>>,
    path: &'d str,
    path_items: &[Node<'d>],
) -> Result<(), AuditError> {
    let first = operations.len();
    let mut add = |method: &'d str, node: Node<'d>| -> Result<(), AuditError> {
        expect_object(node, || format!("{} {}", printable(method), printable(path)))?;
        // An operation of the path itself has precedence over those that the path refers to.
        let known = operations[first..].iter().any(|operation| operation.method == method);
        node.step(operations.len() - first)?;
        if !known {
            operations.push(ListedOperation { method, path, node, path_items: path_items.to_vec() });
        }
        if operations.len() > MAX_OPERATIONS {
            return Err(AuditError::document(too_many()));
        }
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
