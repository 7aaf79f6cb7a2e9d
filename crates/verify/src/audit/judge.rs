//! The judgement of one operation: which parts of the key's contract it declares, and which are missing.

use super::document::{Node, excerpt, printable};
use super::error::AuditError;
use super::key::{self, DeclaredKey, KeyPlace};
use super::lifetime;
use super::operations::{ListedOperation, MethodKind, UnseenPath};
use super::reference::{self, Unseen};

const EXPIRES: &str = "Idempotency-Expires";
const TTL: &str = "x-idempotency-ttl";

/// The statuses that a client needs to tell apart.
pub(super) const ANSWERS: [&str; 3] = ["400", "409", "422"];

/// The declaration of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyDeclaration {
    /// Every client must send the key.
    Required,
    /// A client may send the key.
    Optional,
    /// No key is declared.
    Missing,
}

impl KeyDeclaration {
    /// Returns the name for reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::Missing => "missing",
        }
    }
}

/// The declaration of a key's lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// The extension `x-idempotency-ttl`, with this value.
    Extension(String),
    /// The header `Idempotency-Expires` of each answer.
    Header,
    /// These words in the description of the key.
    Description(String),
}

/// A part of the contract that an endpoint does not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingPart {
    /// The key itself.
    Key,
    /// One of [`ANSWERS`].
    Answer(&'static str),
    /// The lifetime of a key.
    Expiry,
}

impl MissingPart {
    /// Returns the name for reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Answer(status) => status,
            Self::Expiry => "expiry",
        }
    }

    /// Returns the consequence for clients.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Key => "no key was found, in a header or in the body: no client can know that it may retry",
            Self::Answer("400") => "the answer to a missing or malformed key is not declared",
            Self::Answer("409") => "the answer to a retry while the first request still runs is not declared",
            Self::Answer(_) => "the answer to a key that was used with another request is not declared",
            Self::Expiry => "the lifetime of a key is not declared: a retry after it runs again",
        }
    }
}

/// One endpoint, with its declarations.
#[derive(Debug)]
pub(super) struct AuditedEndpoint {
    /// The method, or `*` where only the path is known.
    pub(super) method: String,
    pub(super) path: String,
    pub(super) operation_id: Option<String>,
    pub(super) line: usize,
    /// The first tag of the operation.
    pub(super) tag: Option<String>,
    pub(super) key: KeyDeclaration,
    /// The part of a request that has the key, and its name there.
    pub(super) key_place: Option<(KeyPlace, String)>,
    /// For each of [`ANSWERS`], true if it is declared.
    pub(super) answers: [bool; 3],
    pub(super) expiry: Option<Expiry>,
    /// False if the description is out of reach; then a note says why.
    pub(super) seen: bool,
    pub(super) notes: Vec<String>,
}

impl AuditedEndpoint {
    /// Returns the parts of the contract that are not declared.
    pub(super) fn missing(&self) -> Vec<MissingPart> {
        let key = (self.key == KeyDeclaration::Missing).then_some(MissingPart::Key);
        let answers = ANSWERS.into_iter().zip(self.answers).filter(|(_, declared)| !declared);
        let expiry = self.expiry.is_none().then_some(MissingPart::Expiry);
        key.into_iter().chain(answers.map(|(status, _)| MissingPart::Answer(status))).chain(expiry).collect()
    }

    /// Makes an endpoint whose description is out of reach: nothing counts as declared.
    fn unseen(method: &str, path: &str, line: usize, unseen: &Unseen) -> AuditedEndpoint {
        AuditedEndpoint {
            method: method.to_owned(),
            path: path.to_owned(),
            operation_id: None,
            line,
            tag: None,
            key: KeyDeclaration::Missing,
            key_place: None,
            answers: [false; 3],
            expiry: None,
            seen: false,
            notes: vec![format!("cannot tell what it declares: {unseen}")],
        }
    }
}

/// Returns a path whose operations are out of reach as one endpoint.
pub(super) fn judge_unseen(path: &UnseenPath<'_>) -> AuditedEndpoint {
    AuditedEndpoint::unseen("*", path.path, path.line, &path.unseen)
}

/// Judges one operation; `None` if it needs no key. A method that is idempotent by definition is judged only if it
/// declares a key, or if `all_methods` is true.
///
/// # Errors
/// If the document is broken.
pub(super) fn judge(
    operation: &ListedOperation<'_>,
    all_methods: bool,
    key_names: &[&str],
) -> Result<Option<AuditedEndpoint>, AuditError> {
    let kind = MethodKind::of(operation.method);
    if kind == MethodKind::Safe {
        return Ok(None);
    }
    let ListedOperation { method, path, .. } = *operation;
    let wanted = kind == MethodKind::Command || all_methods;
    let node = match reference::follow(operation.node)? {
        Ok(node) => node,
        Err(unseen) => {
            let line = operation.node.line();
            return Ok(wanted.then(|| AuditedEndpoint::unseen(method, path, line, &unseen)));
        }
    };
    let mut notes = Vec::new();
    let declared = key::find(node, &operation.path_items, key_names, &mut notes)?;
    if !wanted && declared.is_none() {
        return Ok(None);
    }
    let key = match &declared {
        None => KeyDeclaration::Missing,
        Some(declared) if declared.required => KeyDeclaration::Required,
        Some(_) => {
            notes.push("the key is optional: a client that sends none cannot retry safely".to_owned());
            KeyDeclaration::Optional
        }
    };
    if let Some(DeclaredKey { place: KeyPlace::Body, name, .. }) = &declared {
        notes.push(format!("the key is `{}` in the body: proxies and gateways see none", printable(name)));
    }
    let responses = match node.get("responses").map(reference::follow).transpose()? {
        Some(Err(unseen)) => {
            notes.push(format!("cannot tell which answers it declares: {unseen}"));
            None
        }
        responses => responses.and_then(Result::ok),
    };
    let answers = find_answers(responses, &mut notes)?;
    let parameter = declared.as_ref().map(|declared| declared.node);
    let mut owners = vec![node];
    owners.extend(parameter);
    owners.extend(&operation.path_items);
    owners.push(node.root());
    let mut expiry = find_ttl(&owners, &mut notes);
    if expiry.is_none() {
        expiry = find_header(responses, &mut notes)?;
    }
    if expiry.is_none() {
        expiry = find_words(parameter)?;
    }
    let operation_id = node.get("operationId").and_then(Node::text).map(excerpt);
    let tag = node.get("tags").and_then(|tags| tags.item(0)).and_then(Node::text).map(excerpt);
    let key_place = declared.map(|declared| (declared.place, declared.name));
    let (method, path) = (method.to_owned(), path.to_owned());
    Ok(Some(AuditedEndpoint {
        method,
        path,
        operation_id,
        line: node.line(),
        tag,
        key,
        key_place,
        answers,
        expiry,
        seen: true,
        notes,
    }))
}

/// Finds the statuses of [`ANSWERS`] that are declared by name. A range does not say what an answer means, and a framework's
/// own answer to an invalid request says nothing about keys.
fn find_answers(responses: Option<Node<'_>>, notes: &mut Vec<String>) -> Result<[bool; 3], AuditError> {
    let Some(responses) = responses else { return Ok([false; 3]) };
    let mut answers = ANSWERS.map(|status| responses.get(status).is_some());
    if let Some(response) = responses.get(ANSWERS[2])
        && is_validation(response)?
    {
        answers[2] = false;
        notes.push(format!(
            "its {} is FastAPI's own, for a request that does not validate: it says nothing about keys",
            ANSWERS[2]
        ));
    }
    let lacking = ANSWERS.into_iter().zip(answers).filter(|(_, declared)| !declared);
    let lacking: Vec<&str> = lacking.map(|(status, _)| status).collect();
    let range = ["4XX", "4xx", "default"].into_iter().find(|range| responses.get(range).is_some());
    if let (Some(range), false) = (range, lacking.is_empty()) {
        let lacking = lacking.join(", ");
        notes.push(format!("`{range}` covers {lacking}, but does not say what it means: declare it by name"));
    }
    Ok(answers)
}

/// Returns whether this is the answer that FastAPI declares for every operation. An answer whose description mentions the key
/// is the service's own.
fn is_validation(response: Node<'_>) -> Result<bool, AuditError> {
    let Ok(response) = reference::follow(response)? else { return Ok(false) };
    let description = response.get("description").and_then(Node::text).map(excerpt).unwrap_or_default();
    if description.to_ascii_lowercase().contains("key")
        || description.to_ascii_lowercase().contains("idempoten")
    {
        return Ok(false);
    }
    let content = response.get("content").map(Node::members).transpose()?.unwrap_or_default();
    Ok(content.into_iter().any(|(_, media)| {
        let schema = media.get("schema").and_then(|schema| schema.get("$ref")).and_then(Node::text);
        schema.is_some_and(|reference| reference.ends_with("/HTTPValidationError"))
    }))
}

/// Finds the extension `x-idempotency-ttl` at the first of these nodes that has it.
fn find_ttl(owners: &[Node<'_>], notes: &mut Vec<String>) -> Option<Expiry> {
    let ttl = owners.iter().find_map(|owner| owner.get(TTL))?;
    match ttl.text().map(str::trim) {
        Some(time) if !time.is_empty() && !ttl.is_null() && !ttl.is_false() => {
            Some(Expiry::Extension(excerpt(time)))
        }
        _ => {
            notes.push(format!("`{TTL}` at line {} is not a time, such as 24h", ttl.line()));
            None
        }
    }
}

/// Finds the header `Idempotency-Expires` on any answer of success.
fn find_header(responses: Option<Node<'_>>, notes: &mut Vec<String>) -> Result<Option<Expiry>, AuditError> {
    for (status, response) in responses.map(Node::members).transpose()?.unwrap_or_default() {
        if !(status.len() == 3 && status.starts_with('2')) {
            continue;
        }
        let response = match reference::follow(response)? {
            Ok(response) => response,
            Err(unseen) => {
                notes.push(format!("cannot tell the headers of {}: {unseen}", printable(status)));
                continue;
            }
        };
        let headers = response.get("headers").map(Node::members).transpose()?.unwrap_or_default();
        if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(EXPIRES)) {
            return Ok(Some(Expiry::Header));
        }
    }
    Ok(None)
}

/// Finds a lifetime in the description of the key.
fn find_words(parameter: Option<Node<'_>>) -> Result<Option<Expiry>, AuditError> {
    let Some(description) = parameter.and_then(|parameter| parameter.get("description")) else {
        return Ok(None);
    };
    let text = description.text().unwrap_or_default();
    description.step(text.len())?;
    Ok(lifetime::mentioned(text).map(Expiry::Description))
}
