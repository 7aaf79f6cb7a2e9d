//! Client of the introspection service. It sends each credential once for all concurrent requests with it,
//! and caches answers under a digest of the credential, never the credential itself, bounded in number and in
//! time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use http_body_util::Full;
use metrics::counter;
use quick_cache::sync::Cache;
use semel_core::{Clock, Principal, SystemClock};
use semel_http::{Denied, Share, ShareHolder, Shares};
use semel_outgoing::{Error, Pool};
use semel_settings::{IntrospectionSettings, Presentation};
use tokio::sync::watch;
use tokio::time::Instant;

use super::credential::{Credential, Digest};
use super::verdict::{self, AnswerMeaning, CredentialVerdict};
use super::{INVALID, challenge, refused};
use crate::secret;
use crate::service::tls_settings;

/// Largest answer in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Largest number of cached callers, and of cached refusals.
const MAX_REMEMBERED: usize = 10_000;
/// Largest number of concurrent calls to the service; further credentials wait.
const MAX_AT_ONCE: usize = 256;

/// Asks the service, and caches its answers.
pub(super) struct Introspector {
    settings: IntrospectionSettings,
    pool: Pool,
    authorization: Option<HeaderValue>,
    /// Answers with their expiry. Callers and refusals are apart, so that a flood of refusals evicts no
    /// caller.
    callers: Cache<Digest, (CredentialVerdict, Instant)>,
    refusals: Cache<Digest, (CredentialVerdict, Instant)>,
    /// Calls under way: at most one per credential.
    flights: Mutex<HashMap<Digest, watch::Receiver<Option<CredentialVerdict>>>>,
    places: Shares,
}

impl Introspector {
    pub(super) fn new(settings: &IntrospectionSettings) -> anyhow::Result<Introspector> {
        let address = settings.url.address().context("`introspection_url`")?;
        let pool = Pool::new(address, tls_settings(&settings.tls)).context("`introspection_url`")?;
        pool.check().context("`[identity]`")?;
        let authorization = match &settings.authorization_env {
            None => None,
            Some(name) => {
                let value = secret::of_variable(name).context("`introspection_authorization_env`")?;
                let mut value = HeaderValue::from_str(&value).with_context(|| {
                    format!("the variable {} cannot be the value of a header", name.as_str())
                })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Introspector {
            settings: settings.clone(),
            pool,
            authorization,
            callers: Cache::new(MAX_REMEMBERED),
            refusals: Cache::new(MAX_REMEMBERED),
            flights: Mutex::default(),
            places: Shares::new(MAX_AT_ONCE),
        })
    }

    pub(super) fn settings(&self) -> &IntrospectionSettings {
        &self.settings
    }

    /// Returns the principal of a credential.
    ///
    /// # Errors
    /// Fails if the service denies the credential or does not answer.
    pub(super) async fn principal(
        self: Arc<Self>,
        credential: Credential,
        peer: Option<IpAddr>,
    ) -> Result<Principal, Denied> {
        let digest = credential.digest();
        let verdict = match self.remembered(&digest) {
            Some(verdict) => {
                count("remembered");
                verdict
            }
            None => {
                // Clients share the places by address, and within an address by credential.
                let holder = ShareHolder::new(&peer, &digest);
                let timeout = self.settings.timeout;
                match tokio::time::timeout(timeout, self.ask_once(credential, digest, holder)).await {
                    Ok(verdict) => verdict,
                    Err(_) => self.unavailable(&Error::TimedOut(timeout)),
                }
            }
        };
        match verdict {
            CredentialVerdict::Caller(principal) => Ok(principal),
            CredentialVerdict::Refused => Err(challenge(INVALID)),
            CredentialVerdict::Forbidden => Err(Denied::Forbidden),
            CredentialVerdict::Unavailable => Err(Denied::Unavailable),
        }
    }

    /// Returns the cached answer, if there is one.
    fn remembered(&self, digest: &Digest) -> Option<CredentialVerdict> {
        let known = self.callers.get(digest).or_else(|| self.refusals.get(digest));
        known.and_then(|(verdict, until)| (Instant::now() < until).then_some(verdict))
    }

    /// Waits for the answer to this credential, and starts the call unless another request has.
    async fn ask_once(
        self: &Arc<Self>,
        credential: Credential,
        digest: Digest,
        holder: ShareHolder,
    ) -> CredentialVerdict {
        let out = self.flights().get(&digest).cloned();
        let mut answer = match out {
            Some(answer) => answer,
            None => {
                let place = self.places.take(holder, 1).await;
                self.depart(credential, digest, place)
            }
        };
        // A call without an answer was ended with its task.
        answer.wait_for(Option::is_some).await.map_or(CredentialVerdict::Unavailable, |answer| {
            answer.clone().unwrap_or(CredentialVerdict::Unavailable)
        })
    }

    /// Starts the call in its own task, which outlives a client that disconnects; unless another call has
    /// begun.
    fn depart(
        self: &Arc<Self>,
        credential: Credential,
        digest: Digest,
        place: Share,
    ) -> watch::Receiver<Option<CredentialVerdict>> {
        let mut flights = self.flights();
        if let Some(answer) = flights.get(&digest) {
            return answer.clone();
        }
        if let Some(verdict) = self.remembered(&digest) {
            return watch::channel(Some(verdict)).1;
        }
        let (landed, answer) = watch::channel(None);
        flights.insert(digest, answer.clone());
        let flight = Flight { introspector: self.clone(), digest };
        tokio::spawn(async move {
            let asked = Instant::now();
            let (verdict, lifetime) = flight.introspector.ask(&credential).await;
            flight.introspector.remember(digest, &verdict, asked + lifetime);
            drop((flight, place));
            landed.send_replace(Some(verdict));
        });
        answer
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<Digest, watch::Receiver<Option<CredentialVerdict>>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, digest: Digest, verdict: &CredentialVerdict, until: Instant) {
        match verdict {
            CredentialVerdict::Caller(_) => {
                self.refusals.remove(&digest);
                self.callers.insert(digest, (verdict.clone(), until));
            }
            CredentialVerdict::Refused | CredentialVerdict::Forbidden => {
                self.callers.remove(&digest);
                self.refusals.insert(digest, (verdict.clone(), until));
            }
            CredentialVerdict::Unavailable => {}
        }
    }

    /// Sends the credential, and returns the answer with the time for which it may be cached.
    async fn ask(&self, credential: &Credential) -> (CredentialVerdict, Duration) {
        let answer = match self.question(credential) {
            Ok(question) => self.pool.ask(question, MAX_ANSWER, self.settings.timeout).await,
            Err(error) => Err(Error::NoAnswer(error.to_string())),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return (self.unavailable(&error), Duration::ZERO),
        };
        match verdict::read(&answer, &self.settings, SystemClock.now()) {
            Ok(AnswerMeaning::Caller(principal, lifetime)) => {
                count("known");
                let lifetime = lifetime.map_or(self.settings.cache, |left| left.min(self.settings.cache));
                (CredentialVerdict::Caller(principal), lifetime)
            }
            Ok(AnswerMeaning::Refused(check)) => {
                count("refused");
                refused(check);
                (CredentialVerdict::Refused, self.settings.refusal_cache)
            }
            Ok(AnswerMeaning::Forbidden) => {
                count("refused");
                (CredentialVerdict::Forbidden, self.settings.refusal_cache)
            }
            Err(why) => (self.unavailable(&why), Duration::ZERO),
        }
    }

    fn question(&self, credential: &Credential) -> http::Result<Request<Full<Bytes>>> {
        match self.settings.presentation {
            Presentation::Form => {
                let question = self
                    .pool
                    .question(Method::POST)
                    .header(ACCEPT, "application/json")
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
                let question = match &self.authorization {
                    Some(value) => question.header(AUTHORIZATION, value),
                    None => question,
                };
                question.body(Full::from(credential.form()))
            }
            Presentation::Forward => {
                let (name, value) = credential.field()?;
                let question = self.pool.question(Method::GET).header(ACCEPT, "application/json");
                question.header(name, value).body(Full::default())
            }
        }
    }

    fn unavailable(&self, why: &dyn std::fmt::Display) -> CredentialVerdict {
        count("unavailable");
        tracing::warn!(%why, "the introspection service gives no answer: nothing is run");
        CredentialVerdict::Unavailable
    }
}

/// Call under way; dropping it lets the credential be sent again.
struct Flight {
    introspector: Arc<Introspector>,
    digest: Digest,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.introspector.flights().remove(&self.digest);
    }
}

fn count(outcome: &'static str) {
    counter!("introspections_total", "outcome" => outcome).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::introspection::tests::settings;
    use semel_settings::ServiceAddress;

    #[tokio::test]
    async fn answers_are_remembered_for_their_time_and_an_outage_is_not() {
        let introspector = Introspector::new(&settings()).expect("it needs nothing");
        let alice = CredentialVerdict::Caller(Principal::new("acme", "alice").expect("they are names"));
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        introspector.remember([1; 32], &alice, later);
        introspector.remember([2; 32], &CredentialVerdict::Refused, later);
        introspector.remember([3; 32], &alice, now);
        introspector.remember([4; 32], &CredentialVerdict::Unavailable, later);
        let remembered = |number| introspector.remembered(&[number; 32]);
        assert_eq!(remembered(1), Some(alice.clone()));
        assert_eq!(remembered(2), Some(CredentialVerdict::Refused));
        assert_eq!((remembered(3), remembered(4), remembered(5)), (None, None, None));
        introspector.remember([1; 32], &CredentialVerdict::Refused, later);
        assert_eq!(remembered(1), Some(CredentialVerdict::Refused), "the last answer counts");
        introspector.remember([1; 32], &alice, later);
        assert_eq!(remembered(1), Some(alice));
        for number in 0_u64..3 * MAX_REMEMBERED as u64 {
            let mut digest = [9; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            introspector.remember(digest, &CredentialVerdict::Refused, later);
        }
        assert!(introspector.refusals.len() <= MAX_REMEMBERED, "a flood of tokens is forgotten");
        assert!(remembered(1).is_some(), "and pushes no caller out");
    }

    /// Starts a service that accepts and counts connections and never answers.
    async fn silent() -> (ServiceAddress, Arc<std::sync::atomic::AtomicUsize>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let taken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = taken.clone();
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
                counter.store(held.len(), std::sync::atomic::Ordering::SeqCst);
            }
        });
        (ServiceAddress::new(&address).expect("it is an address"), taken)
    }

    #[tokio::test]
    async fn requests_with_one_token_share_one_question() {
        let (url, _) = silent().await;
        let timeout = Duration::from_secs(60);
        let introspector = Introspector::new(&IntrospectionSettings { url, timeout, ..settings() });
        let introspector = Arc::new(introspector.expect("it needs nothing"));
        for number in 0..40 {
            let token = if number < 20 { "alice" } else { "bob" };
            // Requests from several addresses share the call, since they have the same token.
            let address = [192, 0, 2, number].into();
            let showing = introspector.clone();
            tokio::spawn(showing.principal(Credential::Bearer(token.to_owned()), Some(address)));
        }
        // On one thread, each task has had its turn after that.
        tokio::task::yield_now().await;
        assert_eq!((introspector.flights().len(), introspector.places.held()), (2, 2));
    }

    #[tokio::test]
    async fn tokens_of_one_address_leave_places_to_others() {
        let (url, taken) = silent().await;
        let timeout = Duration::from_secs(60);
        let introspector = Introspector::new(&IntrospectionSettings { url, timeout, ..settings() });
        let introspector = Arc::new(introspector.expect("it needs nothing"));
        let show = |token: String, address: [u8; 4]| {
            tokio::spawn(introspector.clone().principal(Credential::Bearer(token), Some(address.into())))
        };
        let reaches = async |least: usize| {
            for _ in 0..1000 {
                if taken.load(std::sync::atomic::Ordering::SeqCst) >= least {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            false
        };
        let greedy: Vec<_> =
            (0..2 * MAX_AT_ONCE).map(|number| show(number.to_string(), [192, 0, 2, 1])).collect();
        let part = MAX_AT_ONCE * 16 / 17;
        assert!(reaches(part).await, "one address gets its part");
        let other = show("another".to_owned(), [192, 0, 2, 2]);
        assert!(reaches(part + 1).await, "and another is not held up");
        assert_eq!(introspector.places.held(), part + 1);
        assert!(greedy.iter().all(|shown| !shown.is_finished()) && !other.is_finished(), "all wait");
    }
}
