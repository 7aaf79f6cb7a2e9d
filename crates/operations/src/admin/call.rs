//! Request to an endpoint after authorization, and its answer.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use semel_core::problem::ProblemKind;
use semel_core::{Note, OperationId, Problem};
use semel_settings::nearest;
use serde_json::{Map, Value};

use super::caller::Caller;
use super::{Admin, LATER};
use crate::operate::turns::{NoTurn, ReadTurn};
use crate::operate::{self, strict_json};

/// Default and largest number of entries on a page.
const PAGE: usize = 100;
pub(crate) const MAX_PAGE: usize = 500;

/// Authorized request.
pub(crate) struct AdminCall {
    pub(crate) admin: Arc<Admin>,
    pub(crate) caller: Caller,
    /// Path of the request, with the mount of the router where a service has mounted it.
    pub(crate) path: String,
    /// Path segment at the place of the template's name.
    pub(crate) id: String,
    pub(crate) query: QueryParameters,
    /// Members of its body.
    pub(crate) members: Map<String, Value>,
}

/// Answer that is no problem.
pub(crate) struct AdminAnswer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Body,
    /// Further header fields. They replace those that every answer has.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Result for the log.
    pub(crate) result: &'static str,
}

impl AdminAnswer {
    pub(crate) fn json(value: &Value) -> AdminAnswer {
        let body = Body::from(value.to_string());
        AdminAnswer { content_type: "application/json", ..AdminAnswer::text(StatusCode::OK, body) }
    }

    pub(crate) fn text(status: StatusCode, text: impl Into<Body>) -> AdminAnswer {
        AdminAnswer {
            status,
            content_type: "text/plain; charset=utf-8",
            body: text.into(),
            headers: Vec::new(),
            result: "done",
        }
    }
}

/// Returns the problem for a malformed request.
pub(crate) fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::MalformedRequest, detail)
}

/// Query parameters, each at most once.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Reads the query, which may have these parameters only.
    pub(crate) fn read(uri: &Uri, known: &[&str]) -> Result<QueryParameters, Problem> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        let pairs = pairs.map_err(|_| malformed("The query cannot be read."))?.0;
        for (index, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(unknown("parameter", name, known));
            }
            if pairs[..index].iter().any(|(other, _)| other == name) {
                return Err(malformed(format!("The parameter `{name}` is given twice.")));
            }
        }
        Ok(QueryParameters(pairs))
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    }

    /// Returns the parameter under its name on the command line.
    pub(crate) fn flag(&self, name: &str) -> Option<String> {
        self.get(if name == "older-than" { "olderThan" } else { name })
    }
}

/// Returns the problem for an unknown name, with the nearest known one.
fn unknown(what: &str, name: &str, known: &[&str]) -> Problem {
    let name: String = operate::printable(name).chars().take(80).collect();
    let advice = match (nearest(&name, known.iter().copied()), known) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => "there are none here.".to_owned(),
        (None, _) => format!("known are {}.", known.join(", ")),
    };
    malformed(format!("There is no {what} `{name}`: {advice}"))
}

/// Reads the members of a body, which may have these names only.
pub(crate) fn members(body: &[u8], known: &[&str]) -> Result<Map<String, Value>, Problem> {
    let members = match strict_json::parse(body) {
        Ok(Value::Object(members)) => members,
        Ok(_) => return Err(malformed("The body is not a JSON object.")),
        Err(why) => return Err(malformed(format!("The body cannot be read: {why}."))),
    };
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(unknown("member", name, known)),
        None => Ok(members),
    }
}

impl AdminCall {
    /// Returns the operation id in the path.
    pub(crate) fn operation_id(&self) -> Result<OperationId, Problem> {
        operate::operation_id(&self.id).map_err(malformed)
    }

    /// Returns the note of this action: who does it and why.
    pub(crate) fn note(&self, action: &str) -> Result<Note, Problem> {
        let reason =
            self.member("reason")?.ok_or_else(|| malformed("`reason` is missing: it is kept for good."))?;
        let why = operate::reason(&reason).map_err(|wrong| malformed(format!("`reason` {wrong}.")))?;
        Ok(Note { who: self.caller.who.clone(), action: action.to_owned(), why })
    }

    /// Returns a string member.
    pub(crate) fn member(&self, name: &str) -> Result<Option<String>, Problem> {
        match self.members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(malformed(format!("`{name}` must be a text."))),
        }
    }

    /// Waits for the turn of a read of many records, which ends when it is dropped.
    pub(crate) async fn turn(&self) -> Result<ReadTurn, Problem> {
        self.admin.gate.turns.take().await.map_err(no_turn)
    }

    /// Returns the page size.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.query.get("limit") else { return Ok(PAGE) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
        limit.ok_or_else(|| malformed(format!("`limit` is a number from 1 to {MAX_PAGE}.")))
    }
}

/// Returns the problem for a read that gets no turn.
pub(crate) fn no_turn(why: NoTurn) -> Problem {
    let detail = format!("Nothing was read: {why}. Ask again later.");
    Problem::new(ProblemKind::Overloaded, detail).retry_after(LATER)
}

/// Returns the problem for a caller whose role does not suffice.
pub(crate) fn forbidden() -> Problem {
    Problem::new(ProblemKind::Forbidden, "This needs a token with the role operator.")
}
