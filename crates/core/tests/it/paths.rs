//! The one form of a path: equal for all spellings with the same meaning, absent for ambiguous ones.

use proptest::prelude::*;
use semel_core::OperationName;
use semel_core::path::{
    PathException, PathExceptions, PathRefusal, RequestPath, has_dot_segments, is_reserved, loose,
};
use semel_core::policy::{Policy, Spelling};
use semel_core::route::{Misspelled, RouteError, RoutePath};

fn strict(path: &str) -> Result<String, PathRefusal> {
    RequestPath::read(path)?.admit(PathExceptions::default()).map(std::borrow::Cow::into_owned)
}

fn route(path: &str) -> RoutePath {
    RoutePath::parse(path).expect("it is a route")
}

#[test]
fn every_spelling_of_a_path_has_one_form() {
    for (sent, form) in [
        ("/", "/"),
        ("/payments", "/payments"),
        ("/payments/", "/payments/"),
        ("/p%61yments/7", "/payments/7"),
        ("/%70%61%79%6D%65%6e%74%73/%37", "/payments/7"),
        ("/%2D%5f%7e%41", "/-_~A"),
        ("/a%3ab%3Ab", "/a%3Ab%3Ab"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/a%20b", "/a%20b"),
        ("/100%25", "/100%25"),
        ("/100%25zz", "/100%25zz"),
        ("/a\"<>[]^`{|}b", "/a%22%3C%3E%5B%5D%5E%60%7B%7C%7Db"),
        ("/!$&'()*+,=:@-._~", "/!$&'()*+,=:@-._~"),
        ("/...", "/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/a..b/.c/d.", "/a..b/.c/d."),
    ] {
        assert_eq!(strict(sent).as_deref(), Ok(form), "{sent}");
        assert_eq!(strict(form).as_deref(), Ok(form), "the form of {form} is its own");
    }
}

#[test]
fn ambiguous_paths_have_no_canonical_form() {
    use PathException::{
        EmptySegment, EncodedBackslash, EncodedDot, EncodedPercent, EncodedSlash, Semicolon,
    };
    let not = PathRefusal::NotAllowed;
    for (sent, why) in [
        ("", PathRefusal::NoSlash),
        ("payments", PathRefusal::NoSlash),
        ("*", PathRefusal::NoSlash),
        ("/a\\b", PathRefusal::Byte),
        ("/a b", PathRefusal::Byte),
        ("/a\tb", PathRefusal::Byte),
        ("/a\u{7f}", PathRefusal::Byte),
        ("/caf\u{e9}", PathRefusal::Byte),
        ("/%", PathRefusal::Escape),
        ("/%4", PathRefusal::Escape),
        ("/%zz", PathRefusal::Escape),
        ("/%+1", PathRefusal::Escape),
        ("/%%36%31", PathRefusal::Escape),
        ("/a%00", PathRefusal::Control),
        ("/..%00", PathRefusal::Control),
        ("/a%0d%0A", PathRefusal::Control),
        ("/a%7F", PathRefusal::Control),
        ("/a%C2%85", PathRefusal::Control),
        ("/%FF", PathRefusal::NotUtf8),
        ("/%C0%AF", PathRefusal::NotUtf8),
        ("/%C0%AE%C0%AE/x", PathRefusal::NotUtf8),
        ("/%E0%80%AF", PathRefusal::NotUtf8),
        ("/%ED%A0%80", PathRefusal::NotUtf8),
        ("/%C3", PathRefusal::NotUtf8),
        ("/.", PathRefusal::DotSegment),
        ("/..", PathRefusal::DotSegment),
        ("/a/../b", PathRefusal::DotSegment),
        ("/a/./b", PathRefusal::DotSegment),
        ("/a/%2e%2E/b", PathRefusal::DotSegment),
        ("/a/.%2e/b", PathRefusal::DotSegment),
        ("/a/..%2fb", PathRefusal::DotSegment),
        ("/a/..%5Cb", PathRefusal::DotSegment),
        ("/a/%252e%252e/b", PathRefusal::DotSegment),
        ("/a/..;x/b", PathRefusal::DotSegment),
        ("/a/.%3Bx/b", PathRefusal::DotSegment),
        ("/file%2etxt", not(EncodedDot)),
        ("/a%2fb", not(EncodedSlash)),
        ("/a%2F", not(EncodedSlash)),
        ("/a%5cb", not(EncodedBackslash)),
        ("/%2561", not(EncodedPercent)),
        ("/%25%36%31", not(EncodedPercent)),
        ("/a%252Fb", not(EncodedPercent)),
        ("/a;b=1", not(Semicolon)),
        ("/a/;/b", not(Semicolon)),
        ("//a", not(EmptySegment)),
        ("/a//b", not(EmptySegment)),
        ("/a//", not(EmptySegment)),
        ("//", not(EmptySegment)),
    ] {
        assert_eq!(strict(sent), Err(why), "{sent}");
        assert!(!why.to_string().contains(sent) || sent.is_empty(), "a sentence repeats nothing");
    }
}

#[test]
fn a_route_admits_only_the_path_exceptions_it_allows() {
    let all = PathException::ALL;
    let example = |exception: PathException| match exception {
        PathException::EncodedDot => ("/a%2eb", "/a%2Eb"),
        PathException::EncodedSlash => ("/a%2fb", "/a%2Fb"),
        PathException::EncodedBackslash => ("/a%5cb", "/a%5Cb"),
        PathException::EncodedPercent => ("/a%2541", "/a%2541"),
        PathException::Semicolon => ("/a;b", "/a;b"),
        PathException::EmptySegment => ("/a//b", "/a//b"),
    };
    for exception in all {
        let (sent, form) = example(exception);
        for allowed in all {
            let admitted =
                RequestPath::read(sent).expect("some route may").admit([allowed].into_iter().collect());
            let expected =
                if allowed == exception { Ok(form.into()) } else { Err(PathRefusal::NotAllowed(exception)) };
            assert_eq!(admitted, expected, "{sent} with {allowed}");
        }
    }
}

#[test]
fn every_spelling_of_a_semel_path_is_reserved() {
    for own in [
        "/.well-known/semel/operations/1",
        "/.well-known/semel/",
        "/.well-known/semel",
        "/.Well-Known/SEMEL/x",
        "/.well-known/semel%2Foperations",
        "/.well-known//semel/x",
        "/%2Ewell-known/semel/x",
        "/.well-known/semel;a/x",
        "/.well-known/%73emel/x",
        "/.well-known/%2573emel/x",
    ] {
        assert!(is_reserved(own), "{own}");
    }
    for other in ["/", "/.well-known/", "/.well-known/semelx", "/x/.well-known/semel/", "/well-known/semel/"]
    {
        assert!(!is_reserved(other), "{other}");
    }
}

#[test]
fn configured_paths_have_the_same_form() {
    for (written, form) in [
        ("/p%61yments/{id}", "/payments/{id}"),
        ("/a/{id}:close", "/a/{id}:close"),
        ("/a%3aclose/{*rest}", "/a%3Aclose/{*rest}"),
        ("/{{x}}", "/%7Bx%7D"),
        ("/", "/"),
    ] {
        assert_eq!(
            RoutePath::parse(written).map(|route| route.to_string()).as_deref(),
            Ok(form),
            "{written}"
        );
    }
    for (written, why) in [
        ("/a/../b", RouteError::Path(PathRefusal::DotSegment)),
        ("/a%zz", RouteError::Path(PathRefusal::Escape)),
        ("payments", RouteError::Path(PathRefusal::NoSlash)),
        ("/{id", RouteError::Placeholder),
        ("/id}", RouteError::Placeholder),
        ("/{}", RouteError::Placeholder),
        ("/{*rest}/x", RouteError::Placeholder),
        ("/.well-known/semel/{id}", RouteError::Reserved),
        ("/.Well-Known/Semel", RouteError::Reserved),
    ] {
        assert_eq!(RoutePath::parse(written), Err(why), "{written}");
    }
    let files = route("/files/a%2fb/{name}");
    assert_eq!(
        files.refused_by(PathExceptions::default()),
        Some(PathRefusal::NotAllowed(PathException::EncodedSlash))
    );
    assert_eq!(files.refused_by([PathException::EncodedSlash].into_iter().collect()), None);
}

#[test]
fn trailing_slash_and_letter_case_rules_decide_a_misspelled_path() {
    let (refuse, same, other) = (Spelling::Refuse, Spelling::Same, Spelling::Other);
    let payments = route("/Payments/{id}/Capture");
    for (path, slash, case, expected) in [
        ("/payments/aB/capture", same, refuse, Err(Misspelled::Case)),
        ("/payments/aB/capture", refuse, same, Ok(Some("/Payments/aB/Capture"))),
        ("/payments/aB/capture", refuse, other, Ok(None)),
        ("/Payments/aB/Capture/", refuse, same, Err(Misspelled::TrailingSlash)),
        ("/Payments/aB/Capture/", same, refuse, Ok(Some("/Payments/aB/Capture"))),
        ("/Payments/aB/Capture/", other, refuse, Ok(None)),
        ("/PAYMENTS/aB/Capture/", same, same, Ok(Some("/Payments/aB/Capture"))),
        ("/PAYMENTS/aB/Capture/", same, other, Ok(None)),
        ("/PAYMENTS/aB/Capture/", same, refuse, Err(Misspelled::Case)),
        ("/Payments%3B/aB/Capture", same, same, Err(Misspelled::Encoding)),
    ] {
        let judged = payments.judge(path, slash, case);
        assert_eq!(judged, expected.map(|path| path.map(str::to_owned)), "{path}, {slash:?}, {case:?}");
    }
    let (slashed, root) = (route("/a/"), route("/"));
    assert_eq!(slashed.judge("/a", same, refuse), Ok(Some("/a/".to_owned())));
    assert_eq!(root.judge("/", refuse, refuse), Ok(Some("/".to_owned())));
    let rest = route("/Files/v{*rest}");
    assert_eq!(rest.judge("/files/V1/aB/", refuse, same), Ok(Some("/Files/v1/aB/".to_owned())));
    let part = route("/a/{id}:Close");
    assert_eq!(part.judge("/A/x:close", refuse, same), Ok(Some("/a/x:Close".to_owned())));
    assert_eq!(part.judge("/a/x:other", same, same), Err(Misspelled::Encoding), "its end is another");
    assert_eq!(route("/a/{id}").judge("/a", same, same), Err(Misspelled::Encoding), "it has no such segment");
}

#[test]
fn two_routes_that_one_path_may_be_taken_for_are_confused() {
    let policy = |trailing_slash, letter_case| Policy { trailing_slash, letter_case, ..Policy::default() };
    let refuse = Policy::default();
    let apart = policy(Spelling::Other, Spelling::Other);
    for (one, other) in [("/a/{id}", "/a/{name}/"), ("/a/{id}", "/A/{id}"), ("/a", "/A/")] {
        let (one, other) = (route(one), route(other));
        assert!(one.is_confused_with(&refuse, &other, &refuse), "{one} {other}");
        assert!(one.is_confused_with(&apart, &other, &refuse), "{one} {other}");
        assert!(!one.is_confused_with(&apart, &other, &apart), "{one} {other}");
    }
    let (one, other) = (route("/a:b"), route("/a%3Ab"));
    assert!(one.is_confused_with(&apart, &other, &apart), "no setting tells these apart");
    assert!(!route("/a/{id}").is_confused_with(&refuse, &route("/a/b"), &refuse));
}

#[test]
fn names_of_unmatched_commands_are_made_from_the_one_form() {
    let unmatched = |path: &str| OperationName::unmatched("POST", path).to_string();
    assert_eq!(unmatched("/p%61yments/%37"), "POST /payments/{id}");
    assert_eq!(unmatched("/p%61yments/{id}"), "POST /payments/%7Bid%7D", "nobody poses as a placeholder");
    let former = |name: &str| OperationName::new(name).expect("it is a name").as_former().to_string();
    for (name, form) in [
        ("POST /p%61yments/{id}", "POST /payments/{id}"),
        ("payments.create", "payments.create"),
        ("Pay now /p%61y", "Pay now /p%61y"),
        ("POST /cut#0123", "POST /cut#0123"),
        ("POST /a//b", "POST /a//b"),
        ("M-SEARCH /p%61y", "M-SEARCH /pay"),
        ("post /p%61y", "post /p%61y"),
        (" /p%61y", " /p%61y"),
    ] {
        assert_eq!(former(name), form);
    }
}

/// Returns a path of unreserved characters in another spelling.
fn respelled(path: &str, choices: &[u8]) -> String {
    let mut choices = choices.iter().copied().cycle();
    let mut spell = |byte: u8| match (byte, choices.next().unwrap_or(0) % 3) {
        (b'/' | b'.', _) | (_, 0) => char::from(byte).to_string(),
        (_, 1) => format!("%{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(&mut spell).collect()
}

proptest! {
    #[test]
    fn reading_never_panics_and_is_its_own_form(path in "\\PC{0,40}", escaped in "/(%[0-9a-fA-F]{2}|[a-z/.;%\\\\]){0,20}") {
        for path in [path, escaped] {
            let Ok(read) = RequestPath::read(&path) else { continue };
            let again = RequestPath::read(read.as_str()).expect("a form has a form");
            prop_assert_eq!(again.as_str(), read.as_str());
            prop_assert_eq!(again.needs(), read.needs(), "nothing that was doubtful is lost");
            prop_assert!(!has_dot_segments(read.as_str()));
            prop_assert!(read.as_str().bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'));
            if read.needs().is_empty() {
                let form = read.as_str();
                for bad in ["//", ";", "%2E", "%2F", "%5C", "%00", "\\"] {
                    prop_assert!(!form.contains(bad), "{} in {}", bad, form);
                }
                let folded = form.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(form).to_lowercase();
                if !form.contains('%') {
                    prop_assert_eq!(loose(form), folded, "a plain path is read in one way");
                }
            }
        }
    }

    #[test]
    fn two_spellings_share_a_canonical_path_only_if_the_paths_are_equal(
        path in "(/[a-zA-Z0-9_~-]{1,6}){1,4}/?", other in "(/[a-zA-Z0-9_~-]{1,6}){1,4}/?", choices: [u8; 32]
    ) {
        prop_assert_eq!(strict(&respelled(&path, &choices)), Ok(path.clone()));
        prop_assert_eq!(strict(&respelled(&path, &choices)) == strict(&respelled(&other, &choices)), path == other);
    }

    #[test]
    fn a_case_insensitive_route_restores_its_own_case_and_slash(flips: [bool; 24], id in "[a-zA-Z0-9]{1,8}", slash: bool) {
        let own = format!("/Accounts/{id}/Payments");
        let flip = |(letter, flip): (char, &bool)| if *flip { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
        let (before, after): (String, String) = (
            "/Accounts/".chars().zip(&flips).map(flip).collect(),
            "/Payments".chars().zip(&flips[10..]).map(flip).collect(),
        );
        let sent = format!("{before}{id}{after}{}", if slash { "/" } else { "" });
        let judged = route("/Accounts/{id}/Payments").judge(&sent, Spelling::Same, Spelling::Same);
        prop_assert_eq!(judged, Ok(Some(own)));
    }
}

#[test]
fn a_route_reports_its_canonical_loose_and_slashless_forms() {
    let files = route("/Files/v{id}/%7E/{*rest}");
    assert_eq!((files.as_str(), files.without_slash()), ("/Files/v{id}/~/{*rest}", None));
    assert_eq!(files.loose(), "/files/v{p1}/~/{*rest}");
    assert_eq!(route("/a/{id}/b/{name}").loose(), "/a/{p1}/b/{p3}");
    assert_eq!((route("/a/").without_slash(), route("/").without_slash()), (Some("/a"), None));
}

#[test]
fn each_path_exception_has_a_setting_name_and_a_description() {
    let said = PathException::ALL.map(|exception| {
        let refusal = PathRefusal::NotAllowed(exception).to_string();
        let described = refusal.strip_prefix("The path has ").and_then(|rest| rest.split_once(", which"));
        (exception.to_string(), described.expect("it says what").0.to_owned())
    });
    let expected = [
        ("encoded-dot", "an encoded dot"),
        ("encoded-slash", "an encoded slash"),
        ("encoded-backslash", "an encoded backslash"),
        ("encoded-percent", "an encoding of an encoding"),
        ("semicolon", "a semicolon in a segment"),
        ("empty-segment", "an empty segment"),
    ];
    assert_eq!(said, expected.map(|(word, described)| (word.to_owned(), described.to_owned())));
    assert_eq!(PathException::ALL.map(PathException::as_str), expected.map(|(word, _)| word));
    assert!(PathExceptions::default().is_empty());
    assert!(!PathExceptions::from_iter([PathException::Semicolon]).is_empty());
}
