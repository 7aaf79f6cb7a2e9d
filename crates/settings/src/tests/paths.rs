//! Routes and aliases in their normal form, with their rules.

use semel_core::path::PathException;
use semel_core::policy::Spelling;

use super::{config, file, refused};

fn two(one: &str, other: &str) -> String {
    format!("[[operation]]\nname = \"one\"\n{one}\n[[operation]]\nname = \"other\"\n{other}\n")
}

#[test]
fn routes_and_aliases_have_the_one_form() {
    let config = config(
        "[defaults]\nletter_case = \"same\"\n[[operation]]\nname = \"a\"\nmatch = \"POST /p%61y/{id}%3a\"\n\
         aliases = [\"POST /%70ay/{id}\"]\ntrailing_slash = \"other\"\nallow = [\"encoded-slash\", \"semicolon\"]\n",
    );
    let [operation] = &config.operations[..] else { panic!("there is one") };
    assert_eq!(operation.route.to_string(), "POST /pay/{id}%3A");
    assert_eq!(operation.aliases[0].as_str(), "POST /pay/{id}");
    assert_eq!(
        (operation.policy.trailing_slash, operation.policy.letter_case),
        (Spelling::Other, Spelling::Same)
    );
    assert_eq!(operation.allow, [PathException::EncodedSlash, PathException::Semicolon]);
}

#[test]
fn operations_with_equal_or_ambiguous_routes_are_refused() {
    for (one, other, why) in [
        (
            "match = \"POST /p%61y\"",
            "match = \"POST /pay\"",
            "matches the same requests as the operation `one`",
        ),
        ("match = \"POST /pay\"", "match = \"POST /Pay\"", "is ambiguous with the route of `one`"),
        ("match = \"POST /pay/{id}\"", "match = \"POST /pay/{id}/\"", "is ambiguous with the route of `one`"),
        ("match = \"POST /a:b\"", "match = \"POST /a%3Ab\"", "is ambiguous with the route of `one`"),
        (
            "match = \"POST /a\"\naliases = [\"POST /p%61y\"]",
            "match = \"POST /b\"\naliases = [\"POST /pay\"]",
            "`POST /pay` is listed twice",
        ),
    ] {
        let errors = refused(&file(&two(one, other)));
        assert!(errors.contains(why), "{one} {other}:\n{errors}");
        assert_eq!(errors.matches(": error: ").count(), 1, "{errors}");
    }
    let apart = "\nletter_case = \"other\"";
    config(&two(&format!("match = \"POST /pay\"{apart}"), &format!("match = \"POST /Pay\"{apart}")));
    config(&two("match = \"POST /pay\"", "match = \"PUT /Pay\""));
}

#[test]
fn a_route_that_nothing_can_ask_for_is_refused() {
    for (route, why) in [
        ("POST /a/../b", "dot segment"),
        ("POST /a%zz", "malformed percent-encoding"),
        ("POST /.well-known/semel/x", "Semel's own"),
        ("POST /.Well-Known/semel/x", "Semel's own"),
        ("POST /a%2Fb", "Name it in `allow`"),
        ("POST /a//b", "Name it in `allow`"),
    ] {
        let errors = refused(&file(&format!("[[operation]]\nname = \"a\"\nmatch = \"{route}\"\n")));
        assert!(errors.contains(why), "{route}:\n{errors}");
    }
    let errors = refused(&file("[[operation]]\nname = \"a\"\nmatch = \"POST /a\"\nallow = [\"slash\"]\n"));
    assert!(errors.contains("\"encoded-slash\""), "{errors}");
}
