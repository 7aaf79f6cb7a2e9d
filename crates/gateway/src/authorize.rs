//! Authorization of callers by a service, if the configuration names one.
//!
//! Invariant: only a clear yes allows a request. Any other answer, or none before the timeout, denies it:
//! nothing runs and nothing is shown.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use metrics::counter;
use quick_cache::sync::Cache;
use semel_core::{OperationName, Principal};
use semel_http::Denied;
use semel_outgoing::{Address, Error, Pool, TlsSettings};
use semel_settings::{Authorization, Config};

use crate::forward;
use crate::service::tls_settings;

/// Largest answer in bytes. Only its status is read.
const MAX_ANSWER: usize = 64 * 1024;
/// Largest number of remembered pairs of caller and operation.
const MAX_REMEMBERED: usize = 10_000;

/// Pending answer of the service.
type PendingAuthorization = Pin<Box<dyn Future<Output = Result<(), Denied>> + Send>>;

/// Asks the authorization service about callers.
pub struct Authorizer {
    defaults: Option<AuthorizationRule>,
    by_name: HashMap<OperationName, Option<AuthorizationRule>>,
    allowed: Arc<Allowed>,
}

/// Pairs of caller and operation that were allowed, with the time of the question.
type Allowed = Cache<(Principal, OperationName), Instant>;

/// Service that is asked about an operation, with its timeout and its cache time.
#[derive(Clone)]
struct AuthorizationRule {
    service: Arc<Pool>,
    timeout: Duration,
    cache: Duration,
}

impl Authorizer {
    /// Makes the authorizer that the configuration describes; `None` if no operation needs one.
    ///
    /// # Errors
    /// Fails if a configured service cannot be asked.
    pub fn new(config: &Config) -> anyhow::Result<Option<Authorizer>> {
        let mut services: HashMap<(Address, TlsSettings), Arc<Pool>> = HashMap::new();
        let mut rule = |settings: &Authorization| -> anyhow::Result<Option<AuthorizationRule>> {
            let Some(url) = &settings.url else { return Ok(None) };
            let place = (url.address()?, tls_settings(&settings.tls));
            let service = match services.get(&place) {
                Some(service) => service.clone(),
                None => {
                    let service = Pool::new(place.0.clone(), place.1.clone())?;
                    service.check()?;
                    services.entry(place).or_insert(Arc::new(service)).clone()
                }
            };
            Ok(Some(AuthorizationRule { service, timeout: settings.timeout, cache: settings.cache }))
        };
        let defaults = rule(&config.authorization)?;
        let mut by_name = HashMap::new();
        for operation in &config.operations {
            let rule = rule(&operation.authorization)?;
            // Records under a former name belong to this operation.
            for name in operation.names() {
                by_name.insert(name.clone(), rule.clone());
            }
        }
        let asks = defaults.is_some() || by_name.values().any(Option::is_some);
        let allowed = Arc::new(Cache::new(MAX_REMEMBERED));
        Ok(asks.then_some(Authorizer { defaults, by_name, allowed }))
    }

    /// Checks that this caller may use this operation.
    pub fn authorize(
        &self,
        principal: &Principal,
        operation: &OperationName,
        parts: &Parts,
    ) -> PendingAuthorization {
        let rule = self.by_name.get(operation).unwrap_or(&self.defaults);
        let Some(rule) = rule.clone() else { return Box::pin(std::future::ready(Ok(()))) };
        let who = (principal.clone(), operation.clone());
        if self.allowed.get(&who).is_some_and(|asked| asked.elapsed() < rule.cache) {
            count("remembered");
            return Box::pin(std::future::ready(Ok(())));
        }
        let question = question(&rule.service, principal, operation, parts);
        let allowed = self.allowed.clone();
        Box::pin(async move {
            let asked = Instant::now();
            let answer = ask(&rule, question).await;
            match answer {
                Ok(()) if rule.cache > Duration::ZERO => allowed.insert(who, asked),
                Ok(()) => {}
                Err(_) => {
                    allowed.remove(&who);
                }
            }
            answer
        })
    }
}

/// Returns the question: caller, operation and the caller's own credentials, without API keys of the gateway.
fn question(
    service: &Pool,
    principal: &Principal,
    operation: &OperationName,
    parts: &Parts,
) -> http::Result<Request<Full<Bytes>>> {
    let document = serde_json::json!({
        "tenant": principal.tenant(),
        "caller": principal.caller(),
        "operation": operation.as_str(),
        "method": parts.method.as_str(),
        "path": parts.uri.path(),
    });
    let mut credentials = HeaderMap::new();
    for line in parts.headers.get_all(AUTHORIZATION) {
        credentials.append(AUTHORIZATION, line.clone());
    }
    forward::remove_own_credentials(&mut credentials);
    let question = service.question(Method::POST).header(CONTENT_TYPE, "application/json");
    let mut question = question.body(Full::from(document.to_string()))?;
    question.headers_mut().extend(credentials);
    Ok(question)
}

async fn ask(rule: &AuthorizationRule, question: http::Result<Request<Full<Bytes>>>) -> Result<(), Denied> {
    let answer = match question {
        Ok(question) => rule.service.ask(question, MAX_ANSWER, rule.timeout).await,
        Err(error) => Err(Error::NoAnswer(error.to_string())),
    };
    let why = match answer {
        Ok(answer) if answer.status().is_success() => {
            count("allowed");
            return Ok(());
        }
        Ok(answer) => match denied(&answer) {
            Some(denied) => {
                count("denied");
                return Err(denied);
            }
            None => format!("it answers {}", answer.status()),
        },
        Err(Error::TimedOut(timeout)) => {
            format!("no answer within {timeout:?}, which is `authorize_timeout`")
        }
        Err(error) => error.to_string(),
    };
    count("unavailable");
    tracing::warn!(why, "the authorization service gives no answer: nothing is run");
    Err(Denied::Unavailable)
}

fn denied(answer: &Response<Bytes>) -> Option<Denied> {
    match answer.status() {
        StatusCode::UNAUTHORIZED => {
            Some(Denied::Unauthenticated { challenge: answer.headers().get(WWW_AUTHENTICATE).cloned() })
        }
        StatusCode::FORBIDDEN => Some(Denied::Forbidden),
        _ => None,
    }
}

fn count(outcome: &'static str) {
    counter!("authorizations_total", "outcome" => outcome).increment(1);
}
