//! Finds the key of an operation: a header, or a member of the body, by the usual names for it.

use super::document::{Node, excerpt, printable};
use super::error::AuditError;
use super::reference::{self, Unseen};

/// Names of headers and members that mean a key, without their separators.
const NAMES: [&str; 5] =
    ["idempotencykey", "idempotencytoken", "idempotencyid", "xidempotencykey", "paypalrequestid"];
/// The deepest nesting of `allOf` that is searched.
const MAX_SCHEMAS: usize = 4;

/// A key that an operation declares.
#[derive(Debug)]
pub(super) struct DeclaredKey<'d> {
    /// The parameter, or the schema of the member.
    pub(super) node: Node<'d>,
    pub(super) name: String,
    pub(super) place: KeyPlace,
    pub(super) required: bool,
}

/// The part of a request that has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// A header field.
    Header,
    /// A member of the body.
    Body,
}

impl KeyPlace {
    /// Returns the name for reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Body => "body",
        }
    }
}

/// Finds the key of an operation: at the operation, or else at its path; in a header, or else in the body. `others` are
/// additional names of a key.
///
/// # Errors
/// If the document is broken.
pub(super) fn find<'d>(
    operation: Node<'d>,
    path_items: &[Node<'d>],
    others: &[&str],
    notes: &mut Vec<String>,
) -> Result<Option<DeclaredKey<'d>>, AuditError> {
    let mut unseen: Vec<Unseen> = Vec::new();
    let (mut similar, mut in_body) = (None, None);
    for owner in std::iter::once(&operation).chain(path_items) {
        let Some(parameters) = owner.get("parameters") else { continue };
        for parameter in parameters.items()? {
            let parameter = match reference::follow(parameter)? {
                Ok(parameter) => parameter,
                Err(place) => {
                    unseen.push(place);
                    continue;
                }
            };
            let text = |name: &str| parameter.get(name).and_then(Node::text).unwrap_or_default();
            let (name, place) = (text("name"), text("in"));
            let declared = |place| DeclaredKey {
                node: parameter,
                name: excerpt(name),
                place,
                required: parameter.get("required").is_some_and(Node::is_true),
            };
            match place {
                "header" if is_key(name, others) => return Ok(Some(declared(KeyPlace::Header))),
                // Swagger 2.0 has the body among the parameters.
                "formData" if is_key(name, others) => in_body = in_body.or(Some(declared(KeyPlace::Body))),
                "body" if in_body.is_none() => {
                    in_body = parameter
                        .get("schema")
                        .map(|schema| in_schema(schema, others, 0))
                        .transpose()?
                        .flatten();
                }
                _ if excerpt(name).to_ascii_lowercase().contains("idempoten") => {
                    similar = Some((name, place));
                }
                _ => {}
            }
        }
    }
    if in_body.is_none() {
        in_body = in_request_body(operation, others)?;
    }
    if in_body.is_some() {
        return Ok(in_body);
    }
    if let Some((name, place)) = similar {
        let (name, place) = (printable(name), printable(place));
        notes.push(format!(
            "there is a parameter `{name}` in {place}: only a header, or a member of the body, counts"
        ));
    }
    if let Some(first) = unseen.first() {
        let others = match unseen.len() - 1 {
            0 => String::new(),
            others => format!("; and {others} more like it"),
        };
        notes.push(format!("cannot tell whether it declares the key: the parameter {first}{others}"));
    }
    Ok(None)
}

/// Returns whether a header or a member of this name is a key: `Idempotency-Key`, `idempotency_key`, `PayPal-Request-Id`.
fn is_key(name: &str, others: &[&str]) -> bool {
    if others.iter().any(|other| other.eq_ignore_ascii_case(name)) {
        return true;
    }
    let letters =
        excerpt(name).chars().filter(|c| !matches!(c, '-' | '_' | '.')).collect::<String>().to_lowercase();
    NAMES.contains(&letters.as_str())
}

/// Finds the key in a request body of OpenAPI 3, of any media type.
fn in_request_body<'d>(operation: Node<'d>, others: &[&str]) -> Result<Option<DeclaredKey<'d>>, AuditError> {
    let Some(body) = operation.get("requestBody") else { return Ok(None) };
    let Ok(body) = reference::follow(body)? else { return Ok(None) };
    let Some(content) = body.get("content") else { return Ok(None) };
    for (_, media) in content.members()? {
        let found = media.get("schema").map(|schema| in_schema(schema, others, 0)).transpose()?.flatten();
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Finds the member of a schema that is a key.
fn in_schema<'d>(
    schema: Node<'d>,
    others: &[&str],
    depth: usize,
) -> Result<Option<DeclaredKey<'d>>, AuditError> {
    let Ok(schema) = reference::follow(schema)? else { return Ok(None) };
    let properties = schema.get("properties").map(Node::members).transpose()?.unwrap_or_default();
    if let Some((name, node)) = properties.into_iter().find(|(name, _)| is_key(name, others)) {
        let required = schema.get("required").map(Node::items).transpose()?.unwrap_or_default();
        let required = required.into_iter().any(|item| item.text() == Some(name));
        let node = reference::follow(node)?.unwrap_or(node);
        return Ok(Some(DeclaredKey { node, name: excerpt(name), place: KeyPlace::Body, required }));
    }
    let parts = schema.get("allOf").filter(|_| depth < MAX_SCHEMAS).map(Node::items).transpose()?;
    for part in parts.unwrap_or_default() {
        let found = in_schema(part, others, depth + 1)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
