//! Cross-origin requests of browsers (the CORS protocol of the Fetch standard): decides which pages may read
//! the gateway's own answers. The listener applies it to every request.
//!
//! Invariant: an answer of the upstream passes unchanged, including its own CORS fields.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue,
    ORIGIN, VARY,
};
use http::{Method, Request, Response, StatusCode};
use semel_core::fields;
use semel_core::path::RESERVED_PATH;
use semel_http::{AnswerFacts, Body};
use semel_settings::{CorsOrigin, CorsSettings, Preflight};

/// Header fields that a page may read in the gateway's own answers, beside those that the standard always
/// allows.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Idempotency-Body, Idempotency-Expires, Idempotency-Operation-Id, Idempotency-Replayed, Idempotency-Retry, \
     Idempotent-Replayed, Link, Location, Retry-After, Stripe-Should-Retry, WWW-Authenticate, X-Request-Id",
);

/// Methods of the gateway's own routes that a page may use.
const OWN_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// Largest number of field names that a preflight's answer grants.
const MAX_NAMES: usize = 64;

/// CORS answers of the gateway. Without configured origins it never writes a CORS field.
#[derive(Clone, Debug, Default)]
pub struct Cors(CorsSettings);

/// Value of `Access-Control-Allow-Origin` for one request; none if its origin is granted nothing.
#[derive(Clone, Debug)]
pub struct Grant(Option<HeaderValue>);

impl Cors {
    /// Makes the CORS answers for these settings.
    pub fn new(settings: CorsSettings) -> Cors {
        Cors(settings)
    }

    /// Decides on the origin of a request.
    pub fn grant(&self, headers: &HeaderMap) -> Grant {
        let mut lines = headers.get_all(ORIGIN).iter();
        let (Some(origin), None) = (lines.next(), lines.next()) else { return Grant(None) };
        if self.is_open() {
            return Grant(Some(HeaderValue::from_static("*")));
        }
        let is_listed = |listed: &CorsOrigin| match listed {
            CorsOrigin::Any => true,
            CorsOrigin::Exact(listed) => listed.as_bytes() == origin.as_bytes(),
        };
        Grant(self.0.origins.iter().any(is_listed).then(|| origin.clone()))
    }

    /// Answers a preflight, if the gateway is to answer it.
    pub fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let headers = request.headers();
        let method = headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        let is_own = request.uri().path().starts_with(RESERVED_PATH);
        let is_answered = is_own || self.0.preflight == Preflight::Gateway;
        if self.0.origins.is_empty()
            || request.method() != Method::OPTIONS
            || !headers.contains_key(ORIGIN)
            || !is_answered
        {
            return None;
        }
        let mut answer = Response::new(Body::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let granted = answer.headers_mut();
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        granted.insert(VARY, HeaderValue::from_static(vary));
        let Grant(Some(origin)) = self.grant(headers) else { return Some(answer) };
        self.allow(granted, origin);
        let methods =
            if is_own { Some(OWN_METHODS) } else { is_token(method.as_bytes()).then(|| method.clone()) };
        granted.extend(methods.map(|methods| (ACCESS_CONTROL_ALLOW_METHODS, methods)));
        granted.extend(requested(headers).map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names)));
        granted.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(self.0.max_age.as_secs()));
        Some(answer)
    }

    /// Lets the page of a granted origin read an answer, if the answer is the gateway's own.
    pub fn apply(&self, answer: &mut Response<Body>, grant: Grant) {
        if self.0.origins.is_empty() || !AnswerFacts::of(answer).is_own() {
            return;
        }
        let headers = answer.headers_mut();
        // A stored response that is sent without its body has the fields of the upstream.
        if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        if !self.is_open() {
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
        if let Grant(Some(origin)) = grant {
            self.allow(headers, origin);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }

    fn allow(&self, headers: &mut HeaderMap, origin: HeaderValue) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.0.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }

    /// Returns true if every origin gets the same answer.
    fn is_open(&self) -> bool {
        self.0.origins.contains(&CorsOrigin::Any)
    }
}

/// Returns the requested field names of a preflight, if all of them are valid.
fn requested(headers: &HeaderMap) -> Option<HeaderValue> {
    let names: Vec<HeaderName> = fields::elements(headers, &ACCESS_CONTROL_REQUEST_HEADERS)
        .filter(|name| !name.is_empty())
        .map(HeaderName::from_bytes)
        .collect::<Result<_, _>>()
        .ok()?;
    let names: Vec<&str> = names.iter().take(MAX_NAMES).map(HeaderName::as_str).collect();
    (!names.is_empty()).then(|| HeaderValue::from_str(&names.join(", ")).ok()).flatten()
}

fn is_token(text: &[u8]) -> bool {
    text.len() <= 32 && Method::from_bytes(text).is_ok()
}

#[cfg(test)]
mod tests {
    use semel_core::Problem;
    use semel_core::policy::Profile;
    use semel_core::problem::ProblemKind;

    use super::*;

    const APP: &str = "https://app.example";

    fn cors(origins: &[&str]) -> Cors {
        let origin = |text: &&str| match *text {
            "*" => CorsOrigin::Any,
            text => CorsOrigin::Exact(text.to_owned()),
        };
        Cors(CorsSettings { origins: origins.iter().map(origin).collect(), ..CorsSettings::default() })
    }

    fn from(origins: &[&'static str]) -> HeaderMap {
        origins.iter().map(|origin| (ORIGIN, HeaderValue::from_static(origin))).collect()
    }

    fn own() -> Response<Body> {
        semel_http::problem(&Problem::new(ProblemKind::MissingKey, "No key."), Profile::Ietf)
    }

    fn text<'a>(answer: &'a Response<Body>, name: &HeaderName) -> Option<&'a str> {
        answer.headers().get(name).and_then(|value| value.to_str().ok())
    }

    fn applied(cors: &Cors, origins: &[&'static str], mut answer: Response<Body>) -> Response<Body> {
        cors.apply(&mut answer, cors.grant(&from(origins)));
        answer
    }

    #[test]
    fn only_a_listed_origin_gets_cors_fields_in_answers_of_the_gateway() {
        let listed = cors(&["https://other.example", APP]);
        let answer = applied(&listed, &[APP], own());
        assert_eq!(text(&answer, &ACCESS_CONTROL_ALLOW_ORIGIN), Some(APP));
        assert_eq!(text(&answer, &VARY), Some("Origin"));
        assert!(
            text(&answer, &ACCESS_CONTROL_EXPOSE_HEADERS).is_some_and(|names| names.contains("Retry-After"))
        );
        assert_eq!(text(&answer, &ACCESS_CONTROL_ALLOW_CREDENTIALS), None);
        let others: [&[&str]; 6] = [
            &[],
            &["https://app.example.evil"],
            &["http://app.example"],
            &["null"],
            &[APP, APP],
            &["https://APP.example"],
        ];
        for origins in others {
            let answer = applied(&listed, origins, own());
            assert_eq!(text(&answer, &ACCESS_CONTROL_ALLOW_ORIGIN), None, "{origins:?}");
            assert_eq!(text(&answer, &VARY), Some("Origin"), "a cache must not mix them up: {origins:?}");
        }
        let none = applied(&cors(&[]), &[APP], own());
        assert!(text(&none, &ACCESS_CONTROL_ALLOW_ORIGIN).is_none() && text(&none, &VARY).is_none());
        let open = applied(&cors(&["*"]), &["https://anything.example"], own());
        assert_eq!(text(&open, &ACCESS_CONTROL_ALLOW_ORIGIN), Some("*"));
        let with = Cors(CorsSettings { credentials: true, ..cors(&[APP]).0 });
        assert_eq!(text(&applied(&with, &[APP], own()), &ACCESS_CONTROL_ALLOW_CREDENTIALS), Some("true"));
    }

    #[test]
    fn cors_adds_no_headers_to_upstream_responses() {
        let upstream = Response::new(Body::default());
        assert!(applied(&cors(&[APP]), &[APP], upstream).headers().is_empty());
        let mut stored = own();
        stored
            .headers_mut()
            .insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("https://first.example"));
        let answer = applied(&cors(&[APP]), &[APP], stored);
        let lines: Vec<_> = answer.headers().get_all(ACCESS_CONTROL_ALLOW_ORIGIN).iter().collect();
        assert_eq!(lines, ["https://first.example"]);
    }

    fn ask(cors: &Cors, path: &str, lines: &[(&'static str, &'static str)]) -> Option<Response<Body>> {
        let mut request = Request::builder().method(Method::OPTIONS).uri(path);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        cors.preflight(&request.body(()).expect("tests send valid requests"))
    }

    #[test]
    fn preflights_are_answered_for_our_own_routes_and_others_where_that_is_configured() {
        let lines = [
            ("origin", APP),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "idempotency-key, Content-Type, Semel-Deadline"),
        ];
        let own = "/.well-known/semel/operations/x";
        let listed = cors(&[APP]);
        let answer = ask(&listed, own, &lines).expect("it is ours");
        assert_eq!(answer.status(), 204);
        assert_eq!(text(&answer, &ACCESS_CONTROL_ALLOW_METHODS), Some("GET, HEAD"));
        assert!(ask(&listed, "/payments", &lines).is_none(), "it is the upstream's");
        assert!(ask(&listed, own, &lines[..1]).is_none(), "it is no preflight");
        assert!(ask(&listed, own, &lines[1..]).is_none(), "it is no preflight");
        assert!(ask(&cors(&[]), own, &lines).is_none(), "CORS is off");
        let gateway = Cors(CorsSettings { preflight: Preflight::Gateway, ..listed.0 });
        let answer = ask(&gateway, "/payments", &lines).expect("it is answered here");
        assert_eq!(text(&answer, &ACCESS_CONTROL_ALLOW_ORIGIN), Some(APP));
        assert_eq!(text(&answer, &ACCESS_CONTROL_ALLOW_METHODS), Some("POST"));
        assert_eq!(
            text(&answer, &ACCESS_CONTROL_ALLOW_HEADERS),
            Some("idempotency-key, content-type, semel-deadline")
        );
        assert_eq!(text(&answer, &ACCESS_CONTROL_MAX_AGE), Some("600"));
        let foreign = [("origin", "https://evil.example"), lines[1], lines[2]];
        let answer = ask(&gateway, "/payments", &foreign).expect("it is not the upstream's either");
        assert_eq!((answer.status().as_u16(), text(&answer, &ACCESS_CONTROL_ALLOW_ORIGIN)), (204, None));
        let odd = [lines[0], lines[1], ("access-control-request-headers", "x y")];
        let answer = ask(&gateway, "/payments", &odd).expect("it is answered here");
        assert_eq!(text(&answer, &ACCESS_CONTROL_ALLOW_HEADERS), None);
    }
}
