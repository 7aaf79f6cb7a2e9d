//! Identification of callers at the admin listener: by a token, or by the proxy that has signed them in (`sso`).
//!
//! Invariant: no message, log or answer contains a token; tokens are compared only by digest, against all of
//! them, in a time that does not depend on their values.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::header::{AUTHORIZATION, HeaderMap};
use semel_core::text::steers;
use semel_gateway::secret;
use semel_settings::{AdminSso, AdminToken, Config, Role};
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::caller::{Caller, UnknownCaller};
use super::sso;

/// Smallest and largest number of characters in a token.
const MIN_TOKEN: usize = 32;
const MAX_TOKEN: usize = 1024;

/// Largest length of the name of a given token, in bytes.
const MAX_NAME: usize = 64;

/// Number of failed attempts that are logged per interval; the rest is counted.
const MAX_LOGGED: u32 = 10;
const LOG_TIME: Duration = Duration::from_secs(60);

/// Tokens and single sign-on of the listener. Without any, every caller that can reach it is its operator.
pub(crate) struct AdminAccess {
    tokens: Vec<Token>,
    sso: Option<AdminSso>,
    attempts: Mutex<Attempts>,
}

struct Token {
    digest: [u8; 32],
    caller: Caller,
}

/// Token that a program gives itself to the router that it mounts.
pub struct GivenToken {
    /// The name of its owner in logs and notes.
    pub name: String,
    /// The role of its owner.
    pub role: Role,
    /// The token: 32 to 1024 printable characters of ASCII.
    pub secret: String,
}

impl AdminAccess {
    /// Makes the access of callers with one of these tokens.
    ///
    /// # Errors
    /// Fails if there are none, or one cannot be used.
    pub(crate) fn given(given: &[GivenToken]) -> anyhow::Result<AdminAccess> {
        ensure!(
            !given.is_empty(),
            "there is no token: everybody who reaches the service would be an operator"
        );
        let mut tokens: Vec<Token> = Vec::with_capacity(given.len());
        for GivenToken { name, role, secret } in given {
            let who = format!("token:{name}");
            let is_name = !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(steers);
            ensure!(
                is_name,
                "the name {name:?} of a token is empty, or no printable line of at most {MAX_NAME} bytes"
            );
            ensure!(!tokens.iter().any(|other| other.caller.who == who), "two tokens have the name {name:?}");
            add_text(&mut tokens, Caller { who, role: *role }, secret.as_bytes())
                .with_context(|| format!("the token {name:?}"))?;
        }
        Ok(AdminAccess { tokens, sso: None, attempts: Mutex::default() })
    }

    /// Fetches the tokens.
    ///
    /// # Errors
    /// Fails if a token cannot be used, or if there are none, nor a single sign-on, although other machines can reach the
    /// listener.
    pub(crate) async fn fetch(config: &Config) -> anyhow::Result<AdminAccess> {
        let is_open = config.admin_tokens.is_empty() && config.admin_sso.is_none();
        ensure!(
            !is_open || config.admin_listen.ip().is_loopback(),
            "`admin_listen` is reachable from other machines, and there is no `[[admin.token]]` and no `[admin.sso]`"
        );
        let mut tokens = Vec::with_capacity(config.admin_tokens.len());
        for token in &config.admin_tokens {
            let text = secret::fetch(&token.source).await;
            add(&mut tokens, token, text).with_context(|| format!("`{}`", token.setting()))?;
        }
        Ok(AdminAccess { tokens, sso: config.admin_sso.clone(), attempts: Mutex::default() })
    }

    /// Returns true if a credential is required.
    pub(crate) fn asks(&self) -> bool {
        !self.tokens.is_empty() || self.sso.is_some()
    }

    /// Identifies the caller. `Authorization` decides alone if the request has it.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<IdentifiedCaller, UnknownCaller> {
        if !self.asks() {
            let caller = Caller { who: "local".to_owned(), role: Role::Operator };
            return Ok(IdentifiedCaller { caller, is_ambient: false });
        }
        if headers.contains_key(AUTHORIZATION) {
            return Ok(IdentifiedCaller { caller: self.of_token(headers)?, is_ambient: false });
        }
        let signed_in = match &self.sso {
            Some(sso) => sso::identify(sso, headers, peer)?,
            None => None,
        };
        let caller = signed_in.ok_or(UnknownCaller::Missing)?;
        Ok(IdentifiedCaller { caller, is_ambient: true })
    }

    /// Identifies the holder of the token.
    fn of_token(&self, headers: &HeaderMap) -> Result<Caller, UnknownCaller> {
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

/// Caller, and the way in which it was identified.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IdentifiedCaller {
    pub(crate) caller: Caller,
    /// True if a browser sends the credential by itself, also for a page of another origin.
    pub(crate) is_ambient: bool,
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
    let caller = Caller { who: format!("token:{}", token.name), role: token.role };
    add_text(tokens, caller, text?.trim_ascii())
}

/// Adds the token of this text, which must be good enough, and new.
fn add_text(tokens: &mut Vec<Token>, caller: Caller, text: &[u8]) -> anyhow::Result<()> {
    let digest = digest(check(text)?);
    if let Some(twin) = tokens.iter().find(|other| bool::from(other.digest.ct_eq(&digest))) {
        anyhow::bail!("it is the same token as that of {}: each needs its own", twin.caller.who);
    }
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
    use http::{HeaderName, HeaderValue};
    use semel_settings::{ProxyRange, SecretSource, SsoMember};

    const ALICE: &str = "alice-0123456789abcdef0123456789abcdef";
    const BOB: &str = "bob-0123456789abcdef0123456789abcdef01";

    fn token(name: &str, role: Role) -> AdminToken {
        AdminToken { name: name.to_owned(), role, source: SecretSource::File("unused".into()) }
    }

    fn access() -> AdminAccess {
        let mut tokens = Vec::new();
        for (name, role, text) in [("alice", Role::Viewer, ALICE), ("bob", Role::Operator, BOB)] {
            add(&mut tokens, &token(name, role), Ok(text.into())).expect("it is a token");
        }
        AdminAccess { tokens, sso: None, attempts: Mutex::default() }
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
            let alice = access.of_token(&headers(&[&format!("{scheme} {ALICE}")])).expect("she is known");
            assert_eq!((alice.who.as_str(), alice.role), ("token:alice", Role::Viewer));
        }
        let bob = access.of_token(&headers(&[&format!("Bearer {BOB}")])).expect("he is known");
        assert_eq!((bob.who.as_str(), bob.role), ("token:bob", Role::Operator));
    }

    #[test]
    fn malformed_and_unknown_tokens_are_refused() {
        let access = access();
        assert_eq!(access.identify(&HeaderMap::new(), None), Err(UnknownCaller::Missing));
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
            assert_eq!(access.identify(&headers(lines), None), Err(UnknownCaller::Wrong), "{lines:?}");
        }
    }

    #[test]
    fn authorization_decides_alone_and_single_sign_on_names_the_others() {
        let proxy = IpAddr::from([10, 0, 0, 1]);
        let sso = AdminSso {
            proxies: vec![ProxyRange::new(proxy, 32)],
            user_header: HeaderName::from_static("x-user"),
            groups_header: None,
            operators: vec![SsoMember::User("olga".to_owned())],
            viewers: Vec::new(),
        };
        let both = AdminAccess { sso: Some(sso.clone()), ..access() };
        let alone = AdminAccess { tokens: Vec::new(), sso: Some(sso), attempts: Mutex::default() };
        let with = |lines: &[&str]| {
            let mut headers = headers(lines);
            headers.insert("x-user", HeaderValue::from_static("olga"));
            headers
        };
        for access in [&both, &alone] {
            let olga = access.identify(&with(&[]), Some(proxy)).expect("she is signed in");
            assert_eq!(
                (&*olga.caller.who, olga.caller.role, olga.is_ambient),
                ("sso:olga", Role::Operator, true)
            );
            assert_eq!(access.identify(&with(&[]), Some([10, 0, 0, 2].into())), Err(UnknownCaller::Missing));
            assert_eq!(access.identify(&with(&[]), None), Err(UnknownCaller::Missing));
            let wrong = access.identify(&with(&["Bearer nonsense"]), Some(proxy));
            assert_eq!(wrong, Err(UnknownCaller::Wrong), "the header does not help a wrong token");
        }
        let alice = both.identify(&with(&[&format!("Bearer {ALICE}")]), Some(proxy)).expect("she is known");
        assert_eq!((&*alice.caller.who, alice.is_ambient), ("token:alice", false));
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
