//! Reads an HTTP request into a command: its caller, its key, its payload. Nothing here has an effect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, EXPECT, HeaderName, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode, Uri, Version};
use semel_core::fields::{self, Section, Treatment};
use semel_core::policy::{KeyRequirement, Policy, Profile};
use semel_core::problem::ProblemKind;
use semel_core::{Command, IdempotencyKey, Principal, Problem, Scope, Timestamp};
use tokio::time::Instant;

use crate::answer::{self, Answer, problems};
use crate::body::{self, Body, BoxError, Collected};
use crate::busy::KeyHashPrefix;
use crate::client_deadline::{ClientDeadline, MalformedDeadline};
use crate::command::{CommandRequest, KEY, fingerprint};
use crate::holds::HoldState;
use crate::identity::Denied;
use crate::observe::{self, HoldOutcome, ObservationLabels, steps};
use crate::operations::{CommandRule, InPlace};
use crate::resource;
use crate::screened::ScreenedBody;
use crate::shared::Shared;
use crate::shares::Share;
use crate::spans::OpenSpan;
use crate::whole::WholeBody;

/// Another header that carries credentials.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The maximum length of a business reference.
const MAX_REFERENCE_BYTES: usize = 255;

/// A request that was read.
pub(crate) enum RequestReading {
    /// A command.
    Command(Box<CommandRequest>),
    /// A request that is not protected, and passes through.
    PassThrough(Box<Request<Body>>),
    /// A request that is refused, and the labels for its observation.
    Refused(Box<Answer>, Box<ObservationLabels>),
    /// The answer at one of Semel's own paths.
    Answered(Box<Answer>),
}

/// Reads a request, in the order of the contract: path, caller, authorization, key, age, size, payload.
pub(crate) async fn read<B>(shared: &Shared, request: Request<B>) -> RequestReading
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = request.into_parts();
    let deadline = ClientDeadline::read(&parts.headers, Instant::now());
    // Fields that only Semel sets.
    fields::remove(&mut parts.headers, Section::RequestHead, Treatment::Strip);
    let (rule, profile) = match check_fields(&parts.headers).and_then(|()| put_in_place(shared, &mut parts)) {
        Ok(placed) => placed,
        Err(problem) => {
            let profile = shared.operations.profile(&parts.method, parts.uri.path());
            let about =
                ObservationLabels::unplaced(shared.operations.label(), &parts.method, parts.uri.path());
            let answer = turned_away(problem.into(), profile, &parts, body).await;
            return RequestReading::Refused(Box::new(answer), Box::new(about));
        }
    };
    if let Some(answer) = resource::answer(shared, &parts).await {
        return RequestReading::Answered(Box::new(answer));
    }
    let passes = |rule: &CommandRule| {
        !parts.headers.contains_key(KEY)
            && answer::is_grpc(&parts.headers)
            && shared.operations.passes_grpc(rule, &parts)
    };
    let Some(rule) = rule else { return pass_through(parts, body, profile) };
    let mut about = Box::new(ObservationLabels::of(&rule));
    if passes(&rule) {
        return pass_unless_held(shared, (rule, about), (parts, body), profile, None).await;
    }
    let principal = match (shared.identify)(&parts).principal().await {
        Ok(principal) => principal,
        Err(Denied::Anonymous { .. }) if rule.anonymous && is_anonymous(&parts.headers) => {
            return pass_unless_held(shared, (rule, about), (parts, body), profile, None).await;
        }
        Err(denied) => {
            let answer = turned_away(CommandRefusal::Denied(denied), profile, &parts, body).await;
            return RequestReading::Refused(Box::new(answer), about);
        }
    };
    about.principal = Some(principal.clone());
    let (key, deadline) = match admit(shared, &rule, &parts, &principal, deadline).await {
        Ok(Some(admitted)) => admitted,
        Ok(None) => {
            return pass_unless_held(shared, (rule, about), (parts, body), profile, Some(&principal)).await;
        }
        Err(refusal) => {
            let answer = turned_away(refusal, profile, &parts, body).await;
            return RequestReading::Refused(Box::new(answer), about);
        }
    };
    about.key = Some(KeyHashPrefix::of(&key));
    match read_command(shared, rule, parts, body, principal, (key, deadline)).await {
        Ok(command) => RequestReading::Command(command),
        Err(refusal) => RequestReading::Refused(Box::new(refusal.answer(profile)), about),
    }
}

/// Returns true for a request without credentials and without a key.
fn is_anonymous(headers: &HeaderMap) -> bool {
    [&KEY, &AUTHORIZATION, &API_KEY].iter().all(|name| !headers.contains_key(*name))
}

/// Puts the request's path into its one form, which everything behind this sees, and finds its rule and the profile of its
/// answers.
fn put_in_place(shared: &Shared, parts: &mut Parts) -> Result<(Option<CommandRule>, Profile), Problem> {
    let malformed = |detail: String| Problem::new(ProblemKind::MalformedRequest, detail);
    let sent = parts.uri.path();
    let InPlace { path, rule, matched, profile } =
        shared.operations.place(&parts.method, sent).map_err(|error| malformed(error.to_string()))?;
    if let Some(label) = matched {
        observe::matched(label, shared.clock.now());
    }
    if path != sent {
        let target = match parts.uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.into_owned(),
        };
        let mut uri = parts.uri.clone().into_parts();
        uri.path_and_query = target.parse().ok();
        parts.uri = Uri::from_parts(uri).map_err(|_| malformed("The path has no form.".to_owned()))?;
    }
    Ok((rule, profile))
}

/// Answers a request that is refused before its body was read.
async fn turned_away<B>(refusal: CommandRefusal, profile: Profile, parts: &Parts, body: B) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut answer = refusal.answer(profile);
    if parts.headers.contains_key(EXPECT) {
        // The client waits for `100 Continue`, and gets this answer instead.
        end_connection(&mut answer, parts.version);
    } else {
        // An answer that comes before the request has ended may never be read.
        body::drain(body).await;
    }
    answer
}

/// Refuses a head with a forbidden field.
fn check_fields(headers: &HeaderMap) -> Result<(), Problem> {
    let fault = |fault: fields::FieldFault| Problem::new(ProblemKind::MalformedRequest, fault.to_string());
    fields::check_request_head(headers).map_err(fault)
}

/// Reason to refuse a command.
enum CommandRefusal {
    Denied(Denied),
    Problem(Problem),
    LastOnConnection(Problem, Version),
}

impl From<Problem> for CommandRefusal {
    fn from(problem: Problem) -> CommandRefusal {
        CommandRefusal::Problem(problem)
    }
}

impl CommandRefusal {
    fn answer(self, profile: Profile) -> Answer {
        match self {
            CommandRefusal::Denied(denied) => denied.answer(profile),
            CommandRefusal::Problem(problem) => Answer::problem(&problem, profile),
            CommandRefusal::LastOnConnection(problem, version) => {
                let mut answer = Answer::problem(&problem, profile);
                end_connection(&mut answer, version);
                answer
            }
        }
    }
}

/// Closes an HTTP/1 connection after this answer: the rest of the request's body may still be coming.
fn end_connection(answer: &mut Answer, version: Version) {
    if version <= Version::HTTP_11 {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Checks the caller's quota and authorization, and the key, the age and the deadline of the request. `None`: the request has no
/// key, and needs none.
async fn admit(
    shared: &Shared,
    rule: &CommandRule,
    parts: &Parts,
    principal: &Principal,
    deadline: Result<ClientDeadline, MalformedDeadline>,
) -> Result<Option<(IdempotencyKey, ClientDeadline)>, CommandRefusal> {
    shared.look_up(principal).await?;
    (shared.authorize)(principal, &rule.name, parts).await.map_err(CommandRefusal::Denied)?;
    let lines = parts.headers.get_all(KEY).iter().map(|value| value.as_bytes());
    let key = match rule.policy.key_rules.parse(lines) {
        Ok(Some(key)) => key,
        Ok(None) if rule.policy.key == KeyRequirement::Optional => return Ok(None),
        Ok(None) => {
            let detail = "This operation needs an Idempotency-Key header field.";
            return Err(Problem::new(ProblemKind::MissingKey, detail).into());
        }
        Err(error) => return Err(Problem::new(ProblemKind::InvalidKey, sentence(&error.to_string())).into()),
    };
    check_age(&rule.policy, &parts.headers, shared.clock.now())?;
    if switches_protocols(&parts.headers) {
        let detail = "A command with a key cannot switch protocols: there would be no response to keep.";
        return Err(Problem::new(ProblemKind::MalformedRequest, detail).into());
    }
    Ok(Some((key, deadline.map_err(Problem::from)?)))
}

/// Returns true if the request asks for another protocol. `h2c` may be ignored: HTTP/2 has the same meaning.
fn switches_protocols(headers: &HeaderMap) -> bool {
    fields::elements(headers, &CONNECTION).any(|element| element.eq_ignore_ascii_case(b"upgrade"))
        && fields::elements(headers, &UPGRADE).any(|element| !element.eq_ignore_ascii_case(b"h2c"))
}

/// Reads the body of an admitted request and makes its command.
async fn read_command<B>(
    shared: &Shared,
    rule: CommandRule,
    parts: Parts,
    body: B,
    principal: Principal,
    (key, deadline): (IdempotencyKey, ClientDeadline),
) -> Result<Box<CommandRequest>, CommandRefusal>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let digest = KeyHashPrefix::of(&key);
    let span =
        shared.tracer.as_ref().map(|tracer| OpenSpan::of_request(tracer, &*shared.clock, &parts.headers));
    let mut room = shared.room.of(&principal);
    let begun = steps::begin();
    let (body, trailers) = read_body(shared, &rule.policy, parts.version, body, &mut room).await?;
    steps::body_read(&rule, &principal, digest, body.len(), begun);
    let business_reference = match rule.reference.as_ref().map(|pointer| pointer.scalar(&body)).transpose() {
        Ok(reference) => reference.flatten(),
        Err(_) => {
            let detail = "This operation reads a reference from its body, which must be unambiguous JSON.";
            return Err(Problem::new(ProblemKind::MalformedRequest, detail).into());
        }
    };
    if business_reference.as_ref().is_some_and(|reference| reference.len() > MAX_REFERENCE_BYTES) {
        let detail = format!("The business reference may have at most {MAX_REFERENCE_BYTES} bytes.");
        return Err(Problem::new(ProblemKind::RequestTooLarge, detail).into());
    }
    if business_reference.as_ref().is_some_and(|reference| reference.contains('\0')) {
        let detail = "A business reference cannot hold a NUL character.";
        return Err(Problem::new(ProblemKind::MalformedRequest, detail).into());
    }
    let fingerprint = fingerprint(shared, &rule, (&parts.method, &parts.uri, &parts.headers), &body);
    let command = Command {
        scope: Scope::new(principal, rule.name.clone(), key),
        fingerprint,
        business_reference,
        former: rule.former.clone(),
        policy: rule.policy.clone(),
        trace: span.as_ref().map(OpenSpan::context),
    };
    let room = Arc::new(room);
    Ok(Box::new(CommandRequest { command, rule, parts, body, trailers, room, key: digest, deadline, span }))
}

/// Reads the body of a command, within its bounds of size and time.
async fn read_body<B>(
    shared: &Shared,
    policy: &Policy,
    version: Version,
    body: B,
    room: &mut Share,
) -> Result<(Bytes, HeaderMap), CommandRefusal>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let collecting =
        body::collect(WholeBody::new(version, Box::pin(body)), policy.max_request, Some(&mut *room));
    match tokio::time::timeout(shared.body_timeout, collecting).await {
        Ok(Ok(Collected::Whole { bytes, trailers })) => match fields::check_request_trailers(&trailers) {
            Ok(()) => Ok((bytes, trailers)),
            Err(fault) => Err(Problem::new(ProblemKind::MalformedRequest, fault.to_string()).into()),
        },
        Ok(Ok(Collected::TooLarge(rest))) => {
            body::drain(rest).await;
            let detail = format!("The body may have at most {} bytes.", policy.max_request);
            Err(CommandRefusal::LastOnConnection(Problem::new(ProblemKind::RequestTooLarge, detail), version))
        }
        Ok(Ok(Collected::NoRoom(rest))) => {
            // Other requests may have the memory while the rest is thrown away.
            room.release();
            body::drain(rest.rest()).await;
            let detail = "Too many commands are being carried out at this moment.";
            let problem = Problem::new(ProblemKind::Overloaded, detail).retry_after(Duration::from_secs(1));
            Err(CommandRefusal::LastOnConnection(problem, version))
        }
        Ok(Err(_)) => {
            Err(Problem::new(ProblemKind::RequestIncomplete, "The body broke off before its end.").into())
        }
        Err(_) => {
            let detail = format!("The body did not arrive within {} s.", shared.body_timeout.as_secs());
            let problem = Problem::new(ProblemKind::RequestIncomplete, detail);
            Err(CommandRefusal::LastOnConnection(problem.with_status(StatusCode::REQUEST_TIMEOUT), version))
        }
    }
}

/// Passes a request of an operation on without protection, unless an operator holds the operation or the tenant.
async fn pass_unless_held<B>(
    shared: &Shared,
    (rule, about): (CommandRule, Box<ObservationLabels>),
    (parts, body): (Parts, B),
    profile: Profile,
    principal: Option<&Principal>,
) -> RequestReading
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    if shared.hold_on(&rule, principal).await != HoldState::Held {
        return pass_through(parts, body, profile);
    }
    shared.observer.held(&rule.label);
    steps::held(&rule, principal, None, HoldOutcome::Refused);
    let answer = turned_away(problems::held_problem().into(), profile, &parts, body).await;
    RequestReading::Refused(Box::new(answer), about)
}

/// Passes a request on. Its extensions hold the [`Profile`] for problems of the service behind the layer.
fn pass_through<B>(mut parts: Parts, body: B, profile: Profile) -> RequestReading
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    observe::passed(&parts.method).increment(1);
    parts.extensions.insert(profile);
    let body = match parts.version {
        Version::HTTP_2 => {
            Body::stream(ScreenedBody::of_request(WholeBody::new(Version::HTTP_2, Box::pin(body))))
        }
        _ => Body::stream(ScreenedBody::of_request(Box::pin(body))),
    };
    RequestReading::PassThrough(Box::new(Request::from_parts(parts, body)))
}

/// Refuses a request that is older than the operation allows, or that has no date.
fn check_age(policy: &Policy, headers: &HeaderMap, now: Timestamp) -> Result<(), Problem> {
    let Some(max_age) = policy.max_request_age else { return Ok(()) };
    let header = &policy.timestamp_header;
    let too_old = |detail: String| Err(Problem::new(ProblemKind::RequestTooOld, detail));
    let mut lines = headers.get_all(header).iter();
    let made = match (lines.next(), lines.next()) {
        (Some(only), None) => only.to_str().ok().and_then(read_time),
        _ => None,
    };
    let max = max_age.as_secs();
    match made {
        None => {
            too_old(format!("This operation needs one {header} field with a date, not older than {max} s."))
        }
        Some(made) if now.since(made) > max_age => too_old(format!("The request is older than {max} s.")),
        Some(made) if made.since(now) > max_age => {
            too_old(format!("The request is from the future: {made}."))
        }
        Some(_) => Ok(()),
    }
}

fn read_time(text: &str) -> Option<Timestamp> {
    Timestamp::from_http_date(text).or_else(|| Timestamp::from_rfc3339(text))
}

/// Returns an error's message as a sentence of a problem.
fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_must_say_when_it_was_made_where_that_matters() {
        let policy = Policy { max_request_age: Some(Duration::from_secs(300)), ..Policy::default() };
        let now = Timestamp::from_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("it is a date");
        let check = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("date", HeaderValue::from_static(line));
            }
            check_age(&policy, &headers, now).map_err(|problem| problem.detail)
        };
        assert_eq!(check(&["Sun, 06 Nov 1994 08:44:38 GMT"]), Ok(()));
        assert_eq!(check(&["1994-11-06T08:44:38Z"]), Ok(()));
        assert_eq!(check(&["Sun, 06 Nov 1994 08:44:37 GMT"]), Ok(()), "just not older");
        assert_eq!(check(&["Sun, 06 Nov 1994 08:54:37 GMT"]), Ok(()), "clocks differ by as much");
        assert_eq!(check(&["Sun, 06 Nov 1994 08:44:36 GMT"]), Err("The request is older than 300 s.".into()));
        assert!(check(&["Sun, 06 Nov 1994 09:49:37 GMT"]).is_err_and(|e| e.contains("future")));
        let needs_one = "This operation needs one date field with a date, not older than 300 s.";
        assert_eq!(check(&[]), Err(needs_one.into()));
        assert_eq!(check(&["yesterday"]), Err(needs_one.into()));
        let twice = ["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"];
        assert_eq!(check(&twice), Err(needs_one.into()));
        assert_eq!(check_age(&Policy::default(), &HeaderMap::new(), now), Ok(()));
    }

    #[test]
    fn a_message_is_capitalised_and_ends_with_a_full_stop() {
        assert_eq!(sentence("the key is too short"), "The key is too short.");
        assert_eq!(sentence(""), "");
    }
}
