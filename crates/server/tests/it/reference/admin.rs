//! `admin.md`: every endpoint of the admin listener, from `semel_operations::admin::ENDPOINTS` and its OpenAPI document.

use std::collections::BTreeMap;

use semel_operations::admin::{ENDPOINTS, Endpoint, EndpointAccess};
use semel_settings::Role;
use serde_json::Value;

use super::assert_page;
use super::markdown::{cell, code, codes, table};
use crate::snapshot::root;

const HEAD: &str = "\
# Admin API

Every endpoint of the admin listener (`admin_listen`), with the role that it requires. [Use the admin API](../how-to/admin.md) has
examples, tokens and the audit log. Types and answers are in the OpenAPI document at `GET /admin/v1/openapi.json`. GET
includes HEAD. An unknown parameter or member is refused.

";

const PARAMETERS: &str = "
## Parameters

";

const MEMBERS: &str = "
## Members of a body

Every POST takes a JSON object.

";

fn document() -> Value {
    let file = root().join("crates/operations/src/admin/openapi.json");
    serde_json::from_str(&std::fs::read_to_string(file).expect("it is there")).expect("it is JSON")
}

/// Returns the part of the OpenAPI document about an endpoint.
fn described<'d>(document: &'d Value, endpoint: &Endpoint) -> &'d Value {
    &document["paths"][endpoint.path][endpoint.method.as_str().to_lowercase()]
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_else(|| panic!("no {member} in {value}"))
}

fn role(access: EndpointAccess) -> String {
    match access {
        EndpointAccess::Open => "open to all".to_owned(),
        EndpointAccess::Needs(Role::Viewer) => "viewer".to_owned(),
        EndpointAccess::Needs(Role::Operator) => "operator".to_owned(),
    }
}

/// Returns the bounds of a value by its JSON Schema.
fn bounds(schema: &Value) -> String {
    let words = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words = codes(words);
    let range = |least: &str, most: &str, unit: &str| match (schema.get(least), schema.get(most)) {
        (Some(least), Some(most)) => format!("{least} to {most}{unit}"),
        (Some(least), None) => format!("{least} or more{unit}"),
        (None, Some(most)) => format!("at most {most}{unit}"),
        (None, None) => String::new(),
    };
    let numbers = range("minimum", "maximum", "");
    let lengths = range("minLength", "maxLength", " characters");
    let default = schema.get("default").map(|default| format!("default {default}")).unwrap_or_default();
    let kind = if words.is_empty() { schema["type"].as_str().unwrap_or("any JSON") } else { "" };
    let parts = [kind.to_owned(), words, numbers, lengths, default];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Returns the rows of everything that endpoints take under a name, each with the endpoints that take it.
fn taken<'d>(found: impl Iterator<Item = (&'d str, &'d Value, &'d str)>) -> Vec<[String; 4]> {
    let mut rows: BTreeMap<(&str, String, String), Vec<&str>> = BTreeMap::new();
    for (name, described, path) in found {
        let schema = described.get("schema").unwrap_or(described);
        let row = (name, text(described, "description").to_owned(), bounds(schema));
        rows.entry(row).or_default().push(path);
    }
    let row = |((name, meaning, values), mut paths): ((&str, String, String), Vec<&str>)| {
        paths.dedup();
        let of = paths.iter().map(|path| path.trim_start_matches("/admin/v1/"));
        [code(name), codes(of), cell(&meaning), values]
    };
    rows.into_iter().map(row).collect()
}

fn endpoints(document: &Value) -> String {
    let rows = ENDPOINTS.iter().map(|endpoint| {
        let summary = text(described(document, endpoint), "summary");
        let takes = [endpoint.query, endpoint.members].concat();
        [
            code(&format!("{} {}", endpoint.method, endpoint.path)),
            role(endpoint.access),
            cell(summary),
            codes(takes),
        ]
    });
    table(["endpoint", "role", "answer or action", "parameters or members"], rows)
}

fn parameters(document: &Value) -> String {
    let found = ENDPOINTS.iter().flat_map(|endpoint| {
        let listed = described(document, endpoint)["parameters"].as_array();
        listed.into_iter().flatten().map(|parameter| (text(parameter, "name"), parameter, endpoint.path))
    });
    let is_query = |found: &(&str, &Value, &str)| found.1["in"] == "query";
    table(["parameter", "of", "meaning", "values"], taken(found.filter(is_query)))
}

fn members(document: &Value) -> String {
    let found = ENDPOINTS.iter().flat_map(|endpoint| {
        let schema = &described(document, endpoint)["requestBody"]["content"]["application/json"]["schema"];
        let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let listed = document["components"]["schemas"][name]["properties"].as_object();
        // Every action has a reason; one row stands for all that note it in the store.
        let is_noted = endpoint.action != Some("log level");
        let of = move |member: &str| match member == "reason" && is_noted {
            true => "every action",
            false => endpoint.path,
        };
        listed.into_iter().flatten().map(move |(member, schema)| (member.as_str(), schema, of(member)))
    });
    table(["member", "of", "meaning", "values"], taken(found))
}

#[test]
fn the_page_of_the_admin_api_lists_every_endpoint() {
    let document = document();
    let page = [
        HEAD.to_owned(),
        endpoints(&document),
        PARAMETERS.to_owned(),
        parameters(&document),
        MEMBERS.to_owned(),
        members(&document).replace("`every action`", "every action"),
    ];
    assert_page("admin.md", &page.concat());
}
