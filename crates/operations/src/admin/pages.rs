//! Endpoints about the gateway as a whole.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use semel_core::{AuditId, Problem, Store, Upkeep};
use serde_json::{Value, json};

use super::call::{AdminAnswer, AdminCall, malformed};
use super::unavailable;
use crate::operate::busy;
use crate::operate::records::note_of;

/// Timeout for the store's answer to a readiness check, and greatest age of a change that proves the same.
const PATIENCE: Duration = Duration::from_secs(1);

/// OpenAPI document. A test compares it with the table of endpoints.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

pub(crate) async fn healthz(_: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(AdminAnswer::text(StatusCode::OK, "alive\n"))
}

/// Answers if commands are accepted: the gateway is not stopping, and the store has just taken a change, or takes one now. A
/// store that only answers may commit nothing, such as a new primary that waits for its standbys.
pub(crate) async fn readyz(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let admin = call.admin;
    if admin.closing.load(Ordering::SeqCst) {
        return Ok(AdminAnswer::text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"));
    }
    let away = || AdminAnswer::text(StatusCode::SERVICE_UNAVAILABLE, "the store is away\n");
    if admin.store.is_open() {
        return Ok(away());
    }
    let asked = async {
        match admin.store.has_changed_within(PATIENCE) {
            // Commands prove it already: a read is enough.
            true => admin.store.now().await.map(|_| ()),
            false => admin.store.try_commit().await,
        }
    };
    Ok(match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(_)) => AdminAnswer::text(StatusCode::OK, "ready\n"),
        Ok(Err(_)) | Err(_) => away(),
    })
}

pub(crate) async fn metrics(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let answer = AdminAnswer::text(StatusCode::OK, (call.admin.metrics)());
    Ok(AdminAnswer { content_type: "text/plain; version=0.0.4; charset=utf-8", ..answer })
}

pub(crate) async fn openapi(_: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(AdminAnswer { content_type: "application/json", ..AdminAnswer::text(StatusCode::OK, OPENAPI) })
}

/// Shows the version, the store's guarantees and the number of commands in each state.
pub(crate) async fn status(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let _turn = call.turn().await?;
    let outbox = call.admin.outbox.as_deref();
    let status = crate::operate::status::read(&*call.admin.store, outbox).await.map_err(unavailable)?;
    Ok(AdminAnswer::json(&status))
}

/// Shows operators' actions, the newest first.
pub(crate) async fn audit(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let limit = call.limit()?;
    let before = call.query.get("before").map(|text| text.parse::<AuditId>());
    let before = before.transpose().map_err(|wrong| malformed(format!("`before`: {wrong}.")))?;
    let _turn = call.turn().await?;
    let entries = call.admin.audit.audit(before, limit).await.map_err(unavailable)?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|entry| entry.id.to_string());
    let shown: Vec<Value> = entries.iter().map(note_of).collect();
    Ok(AdminAnswer::json(&json!({ "notes": shown, "next": next })))
}

/// Shows the busiest callers of this gateway.
pub(crate) async fn callers(call: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(AdminAnswer::json(&busy::callers(&*call.admin.busy, call.limit()?)))
}

/// Shows the most repeated keys of this gateway, by their digests.
pub(crate) async fn hot_keys(call: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(AdminAnswer::json(&busy::hot_keys(&*call.admin.busy, call.limit()?)))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::admin::{ENDPOINTS, EndpointAccess};
    use semel_settings::Role;

    type Names = BTreeSet<String>;

    fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
        names.into_iter().map(str::to_owned).collect()
    }

    fn document() -> Value {
        serde_json::from_str(OPENAPI).expect("it is JSON")
    }

    /// Returns the target of a reference in the document.
    fn at<'a>(document: &'a Value, node: &'a Value) -> &'a Value {
        match node["$ref"].as_str() {
            Some(reference) => {
                let pointer = reference.strip_prefix('#').expect("it is in the document");
                document.pointer(pointer).unwrap_or_else(|| panic!("{reference} is there"))
            }
            None => node,
        }
    }

    /// Facts about an endpoint: its access, its parameters, and the members of its body.
    type Described = (String, Names, Names);

    #[test]
    fn the_document_describes_every_endpoint_and_no_other() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        let mut described = BTreeMap::<(String, String), Described>::new();
        for (path, methods) in document["paths"].as_object().expect("there are paths") {
            for (method, operation) in methods.as_object().expect("there are methods") {
                let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
                let of = |place: &str| {
                    let own = parameters.iter().filter(|parameter| parameter["in"] == place);
                    names(own.filter_map(|parameter| parameter["name"].as_str()))
                };
                let (in_path, query) = (of("path"), of("query"));
                let in_template: Names = path
                    .split('/')
                    .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}').map(str::to_owned))
                    .collect();
                assert_eq!(in_path, in_template, "{path}");
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                let schema = at(&document, schema);
                let members = schema["properties"].as_object().into_iter().flatten();
                let members: Names = members.map(|(name, _)| name.clone()).collect();
                if !members.is_empty() {
                    assert_eq!(schema["additionalProperties"], false, "{path}");
                }
                let role = operation["x-role"].as_str().unwrap_or_default().to_owned();
                let open = operation["security"].as_array().is_some_and(Vec::is_empty);
                assert_eq!(open, role == "open", "{path}");
                described.insert((method.to_uppercase(), path.clone()), (role, query, members));
            }
        }
        let endpoints = ENDPOINTS.iter().map(|endpoint| {
            let role = match endpoint.access {
                EndpointAccess::Open => "open",
                EndpointAccess::Needs(role) => role.as_str(),
            };
            let key = (endpoint.method.to_string(), endpoint.path.to_owned());
            let (query, members) = (endpoint.query.iter().copied(), endpoint.members.iter().copied());
            (key, (role.to_owned(), names(query), names(members)))
        });
        assert_eq!(described, endpoints.collect(), "left the document, right the table");
        assert!(Role::Viewer < Role::Operator, "an operator may what a viewer may");
    }

    #[test]
    fn every_reference_of_the_document_leads_somewhere() {
        fn walk(document: &Value, node: &Value, seen: &mut usize) {
            *seen += usize::from(at(document, node) != node);
            match node {
                Value::Object(members) => members.values().for_each(|node| walk(document, node, seen)),
                Value::Array(elements) => elements.iter().for_each(|node| walk(document, node, seen)),
                _ => {}
            }
        }
        let (document, mut seen) = (document(), 0);
        walk(&document, &document, &mut seen);
        assert!(seen > ENDPOINTS.len(), "{seen}");
    }
}
