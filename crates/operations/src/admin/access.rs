//! Tokens and roles of callers at the admin listener.
//!
//! Invariant: no message, log or answer contains a token; tokens are compared only by digest, against all of
//! them, in a time that does not depend on their values.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::header::{AUTHORIZATION, HeaderMap};
use semel_gateway::secret;
use semel_settings::{AdminToken, Config, Role};
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Smallest and largest number of characters in a token.
const MIN_TOKEN: usize = 32;
const MAX_TOKEN: usize = 1024;

/// Number of failed attempts that are logged per interval; the rest is counted.
const MAX_LOGGED: u32 = 10;
const LOG_TIME: Duration = Duration::from_secs(60);

/// Caller at the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Name in logs and notes.
    pub(crate) who: String,
    pub(crate) role: Role,
}

/// Reason for which the caller is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownCaller {
    /// The request has no token.
    Missing,
    /// The request has a wrong token or another credential.
    Wrong,
}

impl UnknownCaller {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            UnknownCaller::Missing => "missing",
            UnknownCaller::Wrong => "wrong",
        }
    }
}

/// Tokens of the listener. Without any, every caller that can reach it is its operator.
pub(crate) struct AdminTokens {
    tokens: Vec<Token>,
    attempts: Mutex<Attempts>,
}

struct Token {
    digest: [u8; 32],
    caller: Caller,
}

impl AdminTokens {
    /// Fetches the tokens.
    ///
    /// # Errors
    /// Fails if a token cannot be used, or if there are none although other machines can reach the listener.
    pub(crate) async fn fetch(config: &Config) -> anyhow::Result<AdminTokens> {
        ensure!(
            !config.admin_tokens.is_empty() || config.admin_listen.ip().is_loopback(),
            "`admin_listen` is reachable from other machines, and there is no `[[admin.token]]`"
        );
        let mut tokens = Vec::with_capacity(config.admin_tokens.len());
        for token in &config.admin_tokens {
            let text = secret::fetch(&token.source).await;
            add(&mut tokens, token, text).with_context(|| format!("`{}`", token.setting()))?;
        }
        Ok(AdminTokens { tokens, attempts: Mutex::default() })
    }

    /// Returns true if a token is required.
    pub(crate) fn asks(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Identifies the caller.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Caller, UnknownCaller> {
        if !self.asks() {
            return Ok(Caller { who: "local".to_owned(), role: Role::Operator });
        }
        if !headers.contains_key(AUTHORIZATION) {
            return Err(UnknownCaller::Missing);
        }
        let presented = digest(bearer(headers).ok_or(UnknownCaller::Wrong)?);
        // The index after the last token stands for none of them.
        let none = u32::try_from(self.tokens.len()).unwrap_or(u32::MAX);
        let mut found = none;
        for (index, token) in (0..none).zip(&self.tokens) {
            found.conditional_assign(&index, token.digest.ct_eq(&presented));
        }
        let token = usize::try_from(found).ok().and_then(|index| self.tokens.get(index));
        token.map(|token| token.caller.clone()).ok_or(UnknownCaller::Wrong)
    }

    /// Counts a failed attempt. If it is to be logged, returns the number of unlogged attempts before it.
    pub(crate) fn attempt(&self) -> Option<u32> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).count(Instant::now())
    }
}

/// Checks the tokens that can be read without running a program.
pub fn look(config: &Config) -> anyhow::Result<()> {
    let mut tokens = Vec::new();
    for token in &config.admin_tokens {
        let Some(text) = secret::look(&token.source) else { continue };
        add(&mut tokens, token, text).with_context(|| format!("`{}`", token.setting()))?;
    }
    Ok(())
}

fn add(tokens: &mut Vec<Token>, token: &AdminToken, text: anyhow::Result<Vec<u8>>) -> anyhow::Result<()> {
    let digest = digest(check(text?.trim_ascii())?);
    if let Some(twin) = tokens.iter().find(|other| bool::from(other.digest.ct_eq(&digest))) {
        anyhow::bail!("it is the same token as that of {}: each needs its own", twin.caller.who);
    }
    let caller = Caller { who: format!("token:{}", token.name), role: token.role };
    tokens.push(Token { digest, caller });
    Ok(())
}

/// Checks that a token can be sent and is hard to guess.
fn check(text: &[u8]) -> anyhow::Result<&[u8]> {
    const ADVICE: &str = "draw one with `openssl rand -base64 32`";
    let length = text.len();
    ensure!(length >= MIN_TOKEN, "it has {length} characters, and needs at least {MIN_TOKEN}: {ADVICE}");
    ensure!(length <= MAX_TOKEN, "it has more than {MAX_TOKEN} characters: {ADVICE}");
    ensure!(
        text.iter().all(u8::is_ascii_graphic),
        "it has a character that no header can carry as a token: {ADVICE}"
    );
    Ok(text)
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Returns the bearer token of the only `Authorization` field.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (line, None) = (lines.next()?.as_bytes(), lines.next()) else { return None };
    let (scheme, token) = line.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Recent failed attempts.
#[derive(Default)]
struct Attempts {
    since: Option<Instant>,
    logged: u32,
    unlogged: u32,
}

impl Attempts {
    fn count(&mut self, now: Instant) -> Option<u32> {
        if self.since.is_none_or(|since| now.duration_since(since) >= LOG_TIME) {
            self.since = Some(now);
            self.logged = 0;
        }
        if self.logged < MAX_LOGGED {
            self.logged += 1;
            return Some(std::mem::take(&mut self.unlogged));
        }
        self.unlogged = self.unlogged.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use semel_settings::SecretSource;

    const ALICE: &str = "alice-0123456789abcdef0123456789abcdef";
    const BOB: &str = "bob-0123456789abcdef0123456789abcdef01";

    fn token(name: &str, role: Role) -> AdminToken {
        AdminToken { name: name.to_owned(), role, source: SecretSource::File("unused".into()) }
    }

    fn access() -> AdminTokens {
        let mut tokens = Vec::new();
        for (name, role, text) in [("alice", Role::Viewer, ALICE), ("bob", Role::Operator, BOB)] {
            add(&mut tokens, &token(name, role), Ok(text.into())).expect("it is a token");
        }
        AdminTokens { tokens, attempts: Mutex::default() }
    }

    fn headers(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_str(line).expect("it is a value"));
        }
        headers
    }

    #[test]
    fn an_admin_token_identifies_its_holder_and_role() {
        let access = access();
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let alice = access.identify(&headers(&[&format!("{scheme} {ALICE}")])).expect("she is known");
            assert_eq!((alice.who.as_str(), alice.role), ("token:alice", Role::Viewer));
        }
        let bob = access.identify(&headers(&[&format!("Bearer {BOB}")])).expect("he is known");
        assert_eq!((bob.who.as_str(), bob.role), ("token:bob", Role::Operator));
    }

    #[test]
    fn malformed_and_unknown_tokens_are_refused() {
        let access = access();
        assert_eq!(access.identify(&HeaderMap::new()), Err(UnknownCaller::Missing));
        let good = format!("Bearer {ALICE}");
        for lines in [
            &["Bearer"][..],
            &["Bearer "],
            &[ALICE],
            &[&format!("Basic {ALICE}")],
            &[&format!("Bearer {}", &ALICE[1..])],
            &[&format!("Bearer {ALICE}x")],
            &[&format!("Bearer {ALICE} {BOB}")],
            &[&good, &good],
        ] {
            assert_eq!(access.identify(&headers(lines)), Err(UnknownCaller::Wrong), "{lines:?}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_used_says_why_and_is_not_repeated() {
        let mut tokens = access().tokens;
        for (text, why) in [
            ("", "has 0 characters"),
            ("short-and-secret", "has 16 characters"),
            (&"x".repeat(1025), "more than 1024"),
            ("0123456789abcdef 0123456789abcdef", "no header"),
            ("0123456789abcdef0123456789abcdeé", "no header"),
            (ALICE, "the same token as that of token:alice"),
        ] {
            let said = add(&mut tokens, &token("carol", Role::Viewer), Ok(text.into()));
            let said = format!("{:#}", said.expect_err("it is refused"));
            assert!(said.contains(why), "{said}");
            assert!(text.is_empty() || !said.contains(text), "{said}");
        }
    }

    #[test]
    fn failed_attempts_are_counted_and_a_few_logged() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        let logged = (0..1000).filter(|_| attempts.count(start).is_some()).count();
        assert_eq!(logged, MAX_LOGGED as usize);
        assert_eq!(attempts.count(start + LOG_TIME), Some(1000 - MAX_LOGGED), "the rest is told later");
        assert_eq!(attempts.count(start + LOG_TIME), Some(0));
    }
}
