//! `[[pass]]`.

use http::Method;

use super::*;

#[test]
fn a_pass_is_read_with_its_route_and_its_exemptions() {
    let text = "[[pass]]\nmatch = \"GET /search/{*rest}\"\nallow = [\"body\"]\n";
    let route = Route { method: Method::GET, path: "/search/{*rest}".to_owned() };
    assert_eq!(config(text).pass, [PassConfig { route, allow: vec![Exemption::Body] }]);
    let rows: Vec<String> = loaded(&file(text)).rows.iter().map(ToString::to_string).collect();
    for row in [
        "pass.\"GET /search/{*rest}\".match = \"GET /search/{*rest}\"  # semel.toml:2",
        "pass.\"GET /search/{*rest}\".allow = [\"body\"]  # semel.toml:3",
    ] {
        assert!(rows.iter().any(|shown| shown == row), "{row}: {rows:#?}");
    }
    assert!(config("").pass.is_empty());
}

#[test]
fn a_pass_rule_without_effect_or_with_errors_is_refused() {
    for (text, message) in [
        ("[[pass]]\nmatch = \"GET /a\"\n", "every `[[pass]]` has a `match` and an `allow`"),
        ("[[pass]]\nallow = [\"body\"]\n", "every `[[pass]]` has a `match` and an `allow`"),
        ("[[pass]]\nmatch = \"GET /a\"\nallow = []\n", "the rule has no effect"),
        ("[[pass]]\nmatch = \"GET /a\"\nallow = [\"bodies\"]\n", "found \"bodies\""),
        ("[[pass]]\nmatch = \"POST /a\"\nallow = [\"body\"]\n", "a POST may have a body anyway"),
        ("[[pass]]\nmatch = \"GET /a\"\nallow = [\"grpc\"]\n", "gRPC has no calls by GET"),
        ("[[pass]]\nmatch = \"POST /a\"\nallow = [\"semicolon\"]\n", "with `allow` in its `[[operation]]`"),
        ("[[pass]]\nmatch = \"GET /a//b\"\nallow = [\"semicolon\"]\n", "The path has an empty segment"),
        ("[[pass]]\nmatch = \"CONNECT /a\"\nallow = [\"body\"]\n", "CONNECT is never passed on"),
        ("[[pass]]\nmatch = \"get /a\"\nallow = [\"body\"]\n", "did you mean \"GET /a\"?"),
        ("[[pass]]\nmatch = \"GET /a?b\"\nallow = [\"body\"]\n", "a route has no query: remove it"),
        ("[pass]\nmatch = \"GET /a\"\n", "write `[[pass]]`"),
        (
            "[[pass]]\nmatch = \"GET /{a}\"\nallow = [\"body\"]\n[[pass]]\nmatch = \"GET /{b}\"\nallow = [\"body\"]\n",
            "matches the same requests as the `[[pass]]` of `GET /{a}`",
        ),
    ] {
        let errors = refused(&file(text));
        assert!(errors.contains(message), "{text}: {errors}");
    }
}
