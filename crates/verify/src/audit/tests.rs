//! Declarations that count, and the bounds of an audit against hostile documents.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::choice::LeftOut;
use super::report::AuditReport;
use super::{AuditOptions, audit, read_text};

const ANSWERS: &str = "{201: {}, 400: {}, 409: {}, '422': {}}";

/// Returns a document with these paths and components, as YAML with two spaces in front.
fn document(rest: &str) -> String {
    format!("openapi: 3.1.0\ninfo: {{title: t, version: '1'}}\n{rest}\n")
}

/// Returns the report on a document.
fn found(document: &str) -> AuditReport {
    audit(document, &AuditOptions::default()).unwrap_or_else(|error| panic!("{error:#}: {document}"))
}

/// Returns the options that audit PUT and DELETE, too.
fn every_method() -> AuditOptions<'static> {
    AuditOptions { all_methods: true, ..AuditOptions::default() }
}

/// Returns the reason for which the document is refused.
fn refused(document: &str) -> String {
    match audit(document, &every_method()) {
        Ok(report) => panic!("it is read: {report:?}"),
        Err(error) => format!("{error:#}"),
    }
}

/// Returns the only endpoint of a document.
fn only(document: &str) -> Value {
    let report = found(document);
    assert_eq!(report.endpoints.len(), 1, "{report:?}");
    report.to_json()["endpoints"][0].clone()
}

/// Returns the report on the endpoint `POST /a` with these members.
fn post(members: &str) -> Value {
    only(&document(&format!("paths:\n  /a:\n    post:\n      {}", members.replace('\n', "\n      "))))
}

fn listed(report: &AuditReport) -> Vec<String> {
    report.endpoints.iter().map(|endpoint| format!("{} {}", endpoint.method, endpoint.path)).collect()
}

#[test]
fn an_endpoint_that_declares_everything_lacks_nothing() {
    let endpoint = post(&format!(
        "operationId: create\nx-idempotency-ttl: 24h\nresponses: {ANSWERS}\n\
         parameters: [{{name: Idempotency-Key, in: header, required: true}}]"
    ));
    assert_eq!(
        endpoint,
        json!({
            "method": "POST",
            "path": "/a",
            "operationId": "create",
            "line": 5,
            "group": "a",
            "key": "required",
            "keyIn": "header",
            "keyName": "Idempotency-Key",
            "answers": {"400": true, "409": true, "422": true},
            "expiry": {"from": "extension", "value": "24h"},
            "missing": [],
            "notes": [],
        })
    );
}

#[test]
fn an_endpoint_that_declares_nothing_lacks_everything() {
    for nothing in ["{}", "null", "", "{responses: {}}", "{parameters: []}", "{responses: {200: {}}}"] {
        let report = found(&document(&format!("paths: {{/a: {{post: {nothing}}}}}")));
        assert!(!report.ok());
        let missing = &report.to_json()["endpoints"][0]["missing"];
        assert_eq!(*missing, json!(["key", "400", "409", "422", "expiry"]), "{nothing}");
    }
}

#[test]
fn the_key_is_a_header_whatever_its_case() {
    for (parameter, key) in [
        ("{name: Idempotency-Key, in: header, required: true}", "required"),
        ("{name: IDEMPOTENCY-key, in: header, required: True}", "required"),
        ("{name: Idempotency-Key, in: header}", "optional"),
        ("{name: Idempotency-Key, in: header, required: false}", "optional"),
        ("{name: Idempotency-Key, in: header, required: 'true'}", "optional"),
        ("{name: Idempotency-Key, in: query, required: true}", "missing"),
        ("{name: Idempotency_Key, in: header, required: true}", "required"),
        ("{name: X-Idempotency-Key, in: header, required: true}", "required"),
        ("{name: PayPal-Request-Id, in: header}", "optional"),
        ("{name: X-Request-Id, in: header}", "missing"),
        ("{in: header}", "missing"),
        ("text", "missing"),
    ] {
        assert_eq!(post(&format!("parameters: [{parameter}]"))["key"], key, "{parameter}");
    }
    let near = post("parameters: [{name: idempotency_key, in: query}]");
    assert!(near["notes"][0].as_str().expect("text").contains("`idempotency_key` in query"), "{near}");
}

#[test]
fn the_key_may_be_a_member_of_the_body() {
    let body =
        |schema: &str| post(&format!("requestBody: {{content: {{application/json: {{schema: {schema}}}}}}}"));
    let square =
        body("{type: object, required: [idempotency_key], properties: {idempotency_key: {type: string}}}");
    assert_eq!((&square["key"], &square["keyIn"]), (&json!("required"), &json!("body")));
    assert_eq!(square["keyName"], "idempotency_key");
    assert!(square["notes"][0].as_str().expect("text").contains("in the body"), "{square}");
    assert_eq!(body("{properties: {idempotencyKey: {}}}")["key"], "optional");
    assert_eq!(body("{properties: {order: {}}}")["key"], "missing");
    assert_eq!(
        body(
            "{allOf: [{properties: {a: {}}}, {required: [idempotency_key], properties: {idempotency_key: {}}}]}"
        )["key"],
        "required"
    );
    let referred = only(&document(
        "paths: {/a: {post: {requestBody: {$ref: '#/components/requestBodies/B'}}}}\n\
         components: {requestBodies: {B: {content: {application/json: {schema: {$ref: '#/components/schemas/S'}}}}}, \
         schemas: {S: {properties: {idempotency_key: {$ref: '#/components/schemas/K'}}}, \
         K: {description: Kept for 24 hours.}}}",
    ));
    assert_eq!((&referred["key"], &referred["expiry"]["value"]), (&json!("optional"), &json!("24 hours")));
    let circle = document(
        "paths: {/a: {post: {requestBody: {content: {a: {schema: {$ref: '#/s'}}}}}}}\ns: {allOf: [{$ref: '#/s'}]}",
    );
    assert_eq!(only(&circle)["key"], "missing", "a schema made of itself has an end");
    let both = post(
        "parameters: [{name: Idempotency-Key, in: header}]\n\
         requestBody: {content: {a: {schema: {required: [idempotency_key], properties: {idempotency_key: {}}}}}}",
    );
    assert_eq!(both["keyIn"], "header", "a header counts first");
}

#[test]
fn another_name_of_the_key_can_be_given() {
    let text =
        document("paths: {/a: {post: {parameters: [{name: X-Request-Token, in: header, required: true}]}}}");
    assert_eq!(only(&text)["key"], "missing");
    let report =
        audit(&text, &AuditOptions { key_names: vec!["x-request-token"], ..AuditOptions::default() });
    assert_eq!(report.expect("it is read").to_json()["endpoints"][0]["key"], "required");
}

#[test]
fn the_automatic_422_of_fastapi_does_not_count_as_a_documented_answer() {
    let fastapi = |description: &str, schema: &str| {
        post(&format!(
            "responses: {{422: {{description: {description}, content: {{application/json: {{schema: \
             {{$ref: '#/components/schemas/{schema}'}}}}}}}}}}"
        ))
    };
    let automatic = fastapi("Validation Error", "HTTPValidationError");
    assert_eq!(automatic["answers"]["422"], false);
    assert!(automatic["notes"][0].as_str().expect("text").contains("FastAPI"), "{automatic}");
    assert_eq!(fastapi("Key used with another request", "HTTPValidationError")["answers"]["422"], true);
    assert_eq!(fastapi("Not processed", "Problem")["answers"]["422"], true);
}

#[test]
fn swagger_2_is_read() {
    let swagger = |parameter: &str| {
        only(&format!(
            "swagger: '2.0'\nbasePath: /v1\npaths: {{/a: {{post: {{parameters: [{parameter}], responses: {ANSWERS}}}}}}}\n\
             parameters: {{Key: {{name: Idempotency-Key, in: header, required: true, type: string, description: Kept for 7 days.}}}}\n\
             definitions: {{New: {{required: [idempotency_key], properties: {{idempotency_key: {{}}}}}}}}"
        ))
    };
    let header = swagger("{$ref: '#/parameters/Key'}");
    assert_eq!((&header["missing"], &header["expiry"]["value"]), (&json!([]), &json!("7 days")));
    let body = swagger("{name: body, in: body, schema: {$ref: '#/definitions/New'}}");
    assert_eq!((&body["key"], &body["keyIn"]), (&json!("required"), &json!("body")));
    let form = swagger("{name: idempotency_key, in: formData, type: string}");
    assert_eq!((&form["key"], &form["keyIn"]), (&json!("optional"), &json!("body")));
}

#[test]
fn endpoints_are_left_out_by_a_pattern() {
    let text = document(
        "paths: {/orders/search: {post: {}}, /orders: {post: {}, patch: {}}, /v2/x/search: {post: {}}}",
    );
    let with = |pattern: &str| {
        let left_out = vec![LeftOut::pattern(pattern).expect("it is a pattern")];
        audit(&text, &AuditOptions { left_out, ..AuditOptions::default() })
    };
    let report = with("POST */search").expect("it is read");
    assert_eq!(listed(&report), ["POST /orders", "PATCH /orders"]);
    assert_eq!(report.ignored, ["POST /orders/search", "POST /v2/x/search"]);
    assert_eq!(listed(&with("/orders*").expect("it is read")), ["POST /v2/x/search"]);
    assert_eq!(listed(&with("patch *").expect("it is read")).len(), 3);
    let error = format!("{:#}", with("*/find").expect_err("it leaves nothing out"));
    assert!(error.contains("--exclude '*/find'"), "{error}");
}

#[test]
fn a_large_document_is_shown_in_groups() {
    let paths = |count: usize, more: &str| {
        let path = |number: usize| {
            format!("/v1/{}/{number}: {{post: {{{more}}}}}", ["orders", "refunds"][number % 2])
        };
        document(&format!("paths: {{{}}}", (0..count).map(path).collect::<Vec<_>>().join(", ")))
    };
    let small = found(&paths(24, "")).to_text();
    assert!(small.contains("POST /v1/orders/0 (line") && !small.contains("=="), "{small}");
    let large = found(&paths(30, ""));
    let said = large.to_text();
    for line in ["== orders: 15 of 15 lack something ==", "== refunds: 15 of 15 lack something =="] {
        assert_eq!(said.lines().filter(|said| *said == line).count(), 1, "{said}");
    }
    assert!(said.contains("  15 x  key     no key was found"), "{said}");
    assert!(said.lines().count() < 55, "each sentence stands once in a group: {said}");
    let groups = json!([{"name": "orders", "endpoints": 15, "lacking": 15}, {"name": "refunds", "endpoints": 15, "lacking": 15}]);
    assert_eq!(large.to_json()["groups"], groups);
    let tagged = found(&paths(30, "tags: [Money, Other]")).to_json();
    assert_eq!(tagged["groups"], json!([{"name": "Money", "endpoints": 30, "lacking": 30}]));
}

#[test]
fn the_parameters_of_a_path_count_unless_the_operation_has_its_own() {
    let with = |operation: &str| {
        let path = "{name: Idempotency-Key, in: header, required: true}";
        let paths = format!("paths: {{/a: {{parameters: [{path}], post: {{parameters: [{operation}]}}}}}}");
        only(&document(&paths))["key"].clone()
    };
    assert_eq!(with(""), "required");
    assert_eq!(with("{name: Idempotency-Key, in: query}"), "required", "it is another parameter");
    assert_eq!(with("{name: idempotency-key, in: header}"), "optional");
}

#[test]
fn answers_count_by_name_only() {
    let answers = |responses: &str| post(&format!("responses: {responses}"));
    let quoted = answers(r#"{"400": {}, '409': {}, 422: {}}"#);
    assert_eq!(quoted["answers"], json!({"400": true, "409": true, "422": true}));
    for range in ["4XX", "4xx", "default"] {
        let found = answers(&format!("{{'400': {{}}, {range}: {{}}}}"));
        assert_eq!(found["answers"], json!({"400": true, "409": false, "422": false}), "{range}");
        let note = found["notes"][0].as_str().expect("text");
        assert!(note.starts_with(&format!("`{range}` covers 409, 422,")), "{note}");
    }
    assert_eq!(answers("{400: {}, 409: {}, 422: {}, default: {}}")["notes"], json!([]));
    let elsewhere = answers("{400: {$ref: 'errors.yaml#/Bad'}}");
    assert_eq!(elsewhere["answers"]["400"], true, "it is declared here, and described elsewhere");
}

#[test]
fn the_most_specific_declaration_of_the_key_expiry_wins() {
    let endpoint = |root: &str, path: &str, operation: &str, parameter: &str, headers: &str| {
        let parameter = format!("{{name: Idempotency-Key, in: header{parameter}}}");
        let operation = format!(
            "{{responses: {{200: {{headers: {{{headers}}}}}}}, parameters: [{parameter}]{operation}}}"
        );
        let paths = format!("{root}\npaths: {{/a: {{post: {operation}{path}}}}}");
        only(&document(&paths))["expiry"].clone()
    };
    let ttl = |text: &str| format!(", x-idempotency-ttl: {text}");
    let extension = |value: &str| json!({"from": "extension", "value": value});
    let words = ", description: Kept for 3 days.";
    let header = "idempotency-expires: {}";
    let root = "x-idempotency-ttl: P7D";
    assert_eq!(endpoint(root, &ttl("1d"), &ttl("2h"), &ttl("3h"), header), extension("2h"));
    assert_eq!(endpoint(root, &ttl("1d"), "", &ttl("3600"), header), extension("3600"));
    assert_eq!(endpoint(root, &ttl("1d"), "", words, header), extension("1d"));
    assert_eq!(endpoint(root, "", "", words, header), extension("P7D"));
    assert_eq!(endpoint("", "", "", words, header), json!({"from": "header", "value": null}));
    assert_eq!(endpoint("", "", "", words, ""), json!({"from": "description", "value": "3 days"}));
    assert_eq!(endpoint("", "", "", "", "Expires: {}"), Value::Null);
    for nothing in ["''", "null", "~", "false", "[24h]", "{a: 1}"] {
        assert_eq!(endpoint("", "", &ttl(nothing), "", ""), Value::Null, "{nothing}");
    }
    let refused = post("responses: {400: {headers: {Idempotency-Expires: {}}}}");
    assert_eq!(refused["expiry"], Value::Null, "a refusal keeps no key");
}

#[test]
fn an_audit_lists_operations_by_method_and_declared_key() {
    let all = document(
        "paths:\n  /a: {get: {}, put: {}, post: {}, delete: {}, options: {}, head: {}, patch: {}, trace: {}, \
         query: {}, additionalOperations: {LOCK: {}, COPY: {}, SEARCH: {}, CONNECT: {}, 'not a method': {}}, \
         x-oai-additionalOperations: {FROB: {}}, summary: post, parameters: []}\n  x-b: {post: {}}",
    );
    let commands = ["POST /a", "PATCH /a", "LOCK /a", "not a method /a", "FROB /a"];
    assert_eq!(listed(&found(&all)), commands);
    let more = audit(&all, &every_method()).expect("it is read");
    assert_eq!(
        listed(&more),
        ["PUT /a", "POST /a", "DELETE /a", "PATCH /a", "LOCK /a", "COPY /a", "not a method /a", "FROB /a"]
    );
    let key = "{parameters: [{name: Idempotency-Key, in: header}]}";
    let opted_in =
        document(&format!("paths: {{/a: {{put: {key}, delete: {{}}, get: {key}}}, /b: {{POST: {{}}}}}}"));
    assert_eq!(listed(&found(&opted_in)), ["PUT /a", "POST /b"]);
}

#[test]
fn references_within_the_document_are_followed() {
    let declared = |reference: &str| {
        let components = "components: {parameters: {a/b: {$ref: '#/components/parameters/c~0d é'}, \
             c~d é: {$ref: '#/x-keys/1'}, e~1f: {$ref: '#/x-keys/1'}}}\n\
             x-keys: [{}, {name: Idempotency-Key, in: header, required: true}]\n$self: https://a.example/api";
        let paths =
            format!("paths: {{/a: {{post: {{parameters: [{{$ref: '{reference}'}}]}}}}}}\n{components}");
        only(&document(&paths))
    };
    for reference in [
        "#/x-keys/1",
        "#/components/parameters/a~1b",
        "#/components/parameters/a%7E1b",
        "#/components/parameters/c~0d%20%C3%A9",
        "#/components/parameters/c~0d é",
        "#/components/parameters/e~01f",
        "https://a.example/api#/x-keys/1",
    ] {
        assert_eq!(declared(reference)["key"], "required", "{reference}");
    }
    for (reference, why) in [
        ("#/x-keys/01", "is not in the document"),
        ("#/x-keys/2", "is not in the document"),
        ("#/x-keys/-", "is not in the document"),
        ("#/components/parameters/a/b", "is not in the document"),
        ("#x-keys", "is not in the document"),
        ("#/%FF", "is not in the document"),
        ("other.yaml#/x-keys/1", "is in another document"),
        ("https://b.example/api#/x-keys/1", "is in another document"),
        ("Key", "is in another document"),
    ] {
        let endpoint = declared(reference);
        assert_eq!(endpoint["key"], "missing", "{reference}");
        let note = endpoint["notes"][0].as_str().expect("text");
        assert!(note.starts_with("cannot tell") && note.contains(why), "{reference}: {note}");
    }
}

#[test]
fn a_path_may_be_described_elsewhere_in_the_document() {
    let shared = document(
        "paths: {/a: {$ref: '#/components/pathItems/one', parameters: [{name: Idempotency-Key, in: header}]}}\n\
         components: {pathItems: {one: {patch: {}, $ref: '#/components/pathItems/two'}, \
         two: {post: {}, patch: {operationId: hidden}, x-idempotency-ttl: 1h}}}",
    );
    let report = found(&shared);
    assert_eq!(listed(&report), ["PATCH /a", "POST /a"]);
    let endpoints = report.to_json()["endpoints"].clone();
    assert_eq!((&endpoints[0]["key"], &endpoints[0]["operationId"]), (&json!("optional"), &Value::Null));
    assert_eq!((&endpoints[1]["key"], &endpoints[1]["expiry"]["value"]), (&json!("optional"), &json!("1h")));
}

#[test]
fn unresolved_references_are_not_taken_for_declared() {
    let report = found(&document(
        "x-idempotency-ttl: 1h\npaths: {/a: {$ref: a.yaml, post: {$ref: post.yaml}, put: {$ref: put.yaml}}, /b: \
         {$ref: '#/nowhere'}, /c: {post: {responses: {$ref: c.yaml}}}}",
    ));
    assert_eq!(listed(&report), ["POST /a", "POST /c", "* /a", "* /b"]);
    for endpoint in &report.endpoints {
        let notes = endpoint.notes.join(" ");
        assert!(notes.contains("cannot tell") && !endpoint.missing().is_empty(), "{endpoint:?}");
    }
    assert!(!report.to_text().contains("* /b (line 4)\n  key"), "what is not known is not said");
}

#[test]
fn aliases_and_merge_keys_are_understood() {
    let report = found(&document(
        "x-keys: &keys\n  - {name: Idempotency-Key, in: header, required: true}\n\
         x-answers: &answers {400: {}, 409: {}}\nx-more: &more {422: {}, 400: {}}\n\
         paths:\n  /a: &a\n    x-idempotency-ttl: 1h\n    post:\n      parameters: *keys\n      responses:\n        \
         <<: [*answers, *more]\n        201: {}\n  /b: *a\n  /c:\n    <<: *a\n    x-idempotency-ttl: 2h",
    ));
    assert!(report.ok(), "{report:?}");
    assert_eq!(listed(&report), ["POST /a", "POST /b", "POST /c"]);
    assert_eq!(report.to_json()["endpoints"][2]["expiry"]["value"], "2h");
}

#[test]
fn json_is_read_with_everything_that_is_legal_in_it() {
    let text = "\u{feff}{\"openapi\":\"3.0.3\",\r\n\t\"info\":{\"title\":\"\\ud83d\\ude80\\/\\u00e9\",\"x\":[1.5e3,-0,null,\"<<\"]},\
                \"<<\":1,\n\t\"paths\":\n\t{\"\\/a\":{\"post\":{\"parameters\":[{\"in\":\"header\",\
                \"name\":\"Idempotency-Key\",\"required\":true}]}}}}";
    assert!(serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')).is_ok(), "it is JSON");
    let endpoint = only(text);
    assert_eq!((&endpoint["path"], &endpoint["key"]), (&json!("/a"), &json!("required")));
}

#[test]
fn documents_other_than_openapi_3_are_refused_with_the_reason() {
    for (text, why) in [
        ("", "there is nothing in it"),
        ("# only a comment\n", "there is nothing in it"),
        ("just text", "not even an object"),
        ("[1, 2]", "not even an object"),
        ("swagger: '1.2'\npaths: {}", "it is Swagger 1.2: only 2.0 is understood"),
        ("asyncapi: 3.0.0", "it has no member `openapi`"),
        ("openapi: 4.0.0\npaths: {}", "it is OpenAPI 4.0.0"),
        ("openapi: 3.10.0\npaths: {}", "it is OpenAPI 3.10.0"),
        ("openapi: 3.1.0\nwebhooks: {}", "it has no `paths`"),
        ("openapi: 3.1.0\npaths: [a]", "line 2: `paths` is not an object"),
        ("openapi: 3.1.0\npaths:\n  /a: text", "line 3: \"/a\" is not an object"),
        ("openapi: 3.1.0\npaths:\n  /a:\n    post: text", "line 4: POST /a is not an object"),
        (
            "openapi: 3.1.0\npaths:\n  /a: {}\n  /b: {}\n  /a: {}",
            "line 5: \"/a\" is there twice in one object, at line 3",
        ),
        ("openapi: 3.1.0\npaths:\n  /a: {\n", "line 3, column 7: unclosed bracket"),
        ("openapi: 3.1.0\n\tpaths: {}", "found a tab"),
        ("openapi: 3.1.0\npaths: *missing", "line 2"),
        ("openapi: 3.1.0\npaths: {[a]: b}", "line 2: the name of a member must be a text"),
        ("openapi: 3.1.0\npaths: {<<: text}", "line 2: << must name an object"),
        ("openapi: 3.1.0\npaths: {}\n---\nopenapi: 3.1.0", "line 3: a second document begins"),
    ] {
        let said = refused(text);
        assert!(said.contains(why), "{text}: {said}");
    }
    for fine in ["openapi: 3.0\npaths: {}", "openapi: '3.2.0'\npaths:", "{\"openapi\":\"3.1\",\"paths\":{}}"]
    {
        assert!(found(fine).to_text().starts_with("There is no endpoint that changes state."), "{fine}");
    }
}

#[test]
fn an_address_in_place_of_a_file_is_named_as_the_mistake() {
    for address in ["http://127.0.0.1:3000/openapi.json", "https://alice:hunter2@example.com/openapi.yaml"] {
        let said = read_text(address).expect_err("it is refused").to_string();
        assert!(said.contains("curl -s URL | semel audit -") && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn too_deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", "")] {
        for levels in [129, 1_000, 100_000] {
            let said = refused(&format!("{}x{}", open.repeat(levels), close.repeat(levels)));
            assert!(said.contains("nested deeper") || said.contains("recursion limit"), "{open}: {said}");
        }
    }
    let deep = format!("x-deep: {}1{}\npaths: {{}}", "[".repeat(120), "]".repeat(120));
    assert!(found(&document(&deep)).ok());
}

#[test]
fn references_in_a_circle_are_an_error() {
    let circle = "components: {parameters: {a: {$ref: '#/components/parameters/b'}, b: {$ref: \
                  '#/components/parameters/a'}}}";
    for paths in [
        "{/a: {post: {parameters: [{$ref: '#/components/parameters/a'}]}}}",
        "{/a: {$ref: '#/components/parameters/a'}}",
        "{/a: {$ref: '#/paths/~1a'}}",
        "{/a: {post: {$ref: '#/paths/~1a/post'}}}",
        "{/a: {post: {responses: {200: {$ref: '#/paths/~1a/post/responses/200'}}}}}",
    ] {
        let said = refused(&document(&format!("paths: {paths}\n{circle}")));
        assert!(said.contains("does it go in a circle?") && said.contains("line 3"), "{said}");
    }
    let itself = refused("openapi: 3.1.0\npaths: &a\n  /a: *a");
    assert!(itself.contains("line 3: the alias stands inside of what it names"), "{itself}");
}

#[test]
fn chains_of_references_are_followed_up_to_a_limit() {
    let chain = |length: usize| {
        let links = (0..length).map(|link| format!("p{link}: {{$ref: '#/x/p{}'}}, ", link + 1));
        let links = links.collect::<String>();
        document(&format!(
            "x: {{{links}p{length}: {{name: Idempotency-Key, in: header}}}}\n\
             paths: {{/a: {{post: {{parameters: [{{$ref: '#/x/p0'}}]}}}}}}"
        ))
    };
    assert_eq!(only(&chain(31))["key"], "optional");
    assert!(refused(&chain(32)).contains("does not end after 32 others"));
}

/// Returns a document of a hundred nested aliases, which would be gigantic if they were expanded.
fn laughs(first: &str, next: impl Fn(&str) -> String) -> String {
    let mut text = format!("x-0: &x0 {first}\n");
    for level in 1..100 {
        let former = format!("*x{}", level - 1);
        text.push_str(&format!("x-{level}: &x{level} {}\n", next(&former)));
    }
    text
}

#[test]
fn aliases_are_not_written_out() {
    let lists = laughs("[ha]", |former| format!("[{}]", [former; 10].join(", ")));
    assert!(found(&document(&format!("{lists}paths: {{/a: {{x-get: *x99, parameters: *x99}}}}"))).ok());
    let said = refused(&document(&format!("{lists}paths: {{/a: {{post: *x99}}}}")));
    assert!(said.contains("POST /a is not an object"), "{said}");
    let parameters = found(&document(&format!("{lists}paths: {{/a: {{post: {{parameters: *x99}}}}}}")));
    assert!(!parameters.ok());
}

#[test]
fn merge_keys_that_copy_too_much_are_an_error() {
    let copied = |rest: &str| {
        let copies: String = (0..2500).map(|copy| format!("x-{copy}: {{<<: *all}}\n")).collect();
        let said = refused(&document(&format!("{rest}\n{copies}paths: {{}}")));
        assert!(said.contains("there is too much in it"), "{said}");
    };
    let members: String = (0..1000).map(|name| format!("m{name}: 1, ")).collect();
    copied(&format!("x: &all {{{members}}}"));
    copied(&format!("x-none: &none {{}}\nx: &all [{}]", ["*none"; 1000].join(", ")));
    let members: String = (0..20).map(|name| format!("? 'm{name}{}' : 1, ", "x".repeat(2000))).collect();
    copied(&format!("x: &all {{{members}}}"));
}

#[test]
fn work_that_references_multiply_has_an_end() {
    let parameters = vec!["{$ref: '#/nothing/of/that/name'}"; 1000].join(", ");
    let paths: String = (0..1000).map(|path| format!("/p{path}: {{$ref: '#/x-shared'}}, ")).collect();
    let shared = format!("x-shared: {{post: {{parameters: [{parameters}]}}}}\npaths: {{{paths}}}");
    let said = refused(&document(&shared));
    assert!(said.contains("gave up after 20000000 steps"), "{said}");
    let words = format!(
        "{{parameters: [{{name: Idempotency-Key, in: header, description: {}}}]}}",
        "x".repeat(1 << 20)
    );
    let paths: String = (0..20).map(|path| format!("/p{path}: {{$ref: '#/x-shared'}}, ")).collect();
    let said = refused(&document(&format!("x-shared: {{post: {words}}}\npaths: {{{paths}}}")));
    assert!(said.contains("gave up"), "{said}");
    let many: String = (0..200).map(|method| format!("M{method}: {{}}, ")).collect();
    let paths: String = (0..200).map(|path| format!("/p{path}: {{$ref: '#/x-shared'}}, ")).collect();
    let shared = format!("x-shared: {{additionalOperations: {{{many}}}}}\npaths: {{{paths}}}");
    let said = refused(&document(&shared));
    assert!(said.contains("more than 10000 operations"), "{said}");
    let long = format!("paths: {{? '{}' : {{}}}}", "x".repeat(5000));
    assert!(refused(&document(&long)).contains("a name of more than 4096 bytes"));
}

#[test]
fn an_endpoint_can_be_ignored_by_name() {
    let text = document("paths: {/login: {post: {}}, /a: {post: {}, patch: {}}}");
    let without = |names: &[&'static str]| {
        let left_out = names.iter().map(|name| LeftOut::named(name)).collect::<Result<_, _>>()?;
        audit(&text, &AuditOptions { left_out, ..AuditOptions::default() })
    };
    let report = without(&["post /login", "PATCH  /a", "PATCH /a"]).expect("it is read");
    assert_eq!(
        (listed(&report), &report.ignored),
        (vec!["POST /a".to_owned()], &vec!["POST /login".into(), "PATCH /a".into()])
    );
    let none = without(&["POST /login", "PATCH /a", "POST /a"]).expect("it is read");
    assert!(none.ok());
    assert_eq!(none.to_text(), "There is no other endpoint that changes state. 3 ignored.\n");
    for (wrong, why) in [
        ("POST /logn", "the audit lists no such endpoint"),
        ("GET /login", "the audit lists no such endpoint"),
        ("/login", "expected a method and a path"),
        ("", "expected a method and a path"),
    ] {
        let said = format!("{:#}", without(&[wrong]).expect_err("it is refused"));
        assert!(said.contains(why), "{wrong}: {said}");
    }
}

#[test]
fn the_table_is_aligned_and_cannot_steer_a_terminal() {
    let long = "x".repeat(60);
    let text = found(&document(&format!(
        "paths: {{\"/é\\e[31m\": {{post: {{}}}}, /{long}: {{patch: {{x-idempotency-ttl: \"1\\nh\"}}}}}}"
    )))
    .to_text();
    assert!(!text.contains('\u{1b}') && text.contains("/é\u{fffd}[31m"), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].len() < 100, "a long path makes no other line longer: {text}");
    let column = |line: &str, word: &str| line.find(word).map(|at| line[..at].chars().count());
    assert_eq!(column(lines[0], "KEY"), column(lines[1], "missing"), "{text}");
    assert!(lines[2].starts_with(&format!("PATCH   /{long}  3")), "{text}");
    assert!(lines[2].ends_with("1\u{fffd}h"), "{text}");
    assert!(
        text.ends_with("2 of 2 lack something: `semel audit --help` says how to declare it.\n"),
        "{text}"
    );
}

/// Returns pieces of documents, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "openapi: 3.1.0\n",
        "paths:",
        "/a:",
        "post:",
        "\n  ",
        "\n    ",
        "\n      ",
        "\n",
        "{",
        "}",
        "[",
        "]",
        ", ",
        ": ",
        "$ref: ",
        "'#/paths/~1a'",
        "'#/paths/~1a/post'",
        "'x.yaml'",
        "parameters:",
        "responses:",
        "&a ",
        "*a ",
        "<<: ",
        "- ",
        "? ",
        "400: ",
        "name: Idempotency-Key",
        "in: header",
        "required: true",
        "\"\\ud83d\"",
        "|\n",
        "description: kept 24 hours.",
        "x-idempotency-ttl: ",
        "---\n",
        "# c\n",
        "!!str ",
        "~",
        "é",
        "\t",
        "'",
        "\"",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn an_audit_of_any_text_never_panics(text in any::<String>(), pieces in pieces()) {
        let started = format!("openapi: 3.1.0\npaths:\n  /a:\n    post: {pieces}");
        for text in [&text, &pieces, &started] {
            if let Ok(report) = audit(text, &every_method()) {
                prop_assert_eq!(report.ok(), report.to_json()["ok"] == json!(true));
                prop_assert!(report.to_text().ends_with(".\n"));
            }
        }
    }
}
