//! Issuer of tokens with real keys, and a server for its keys.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::rsa::{KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use aws_lc_rs::{hmac, rand};
use axum::Router;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use semel_core::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::lab::{Send, pay};

/// Issuer and audience of the tokens.
pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const AUDIENCE: &str = "payments";

/// Signing key.
pub(crate) enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Secret(Vec<u8>),
}

impl Signer {
    pub(crate) fn rsa() -> Signer {
        Signer::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key is made"))
    }

    pub(crate) fn ec() -> Signer {
        Signer::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key is made"))
    }

    pub(crate) fn ed() -> Signer {
        Signer::Ed(Ed25519KeyPair::generate().expect("a key is made"))
    }

    pub(crate) fn secret() -> Signer {
        let mut secret = [0; 32];
        rand::fill(&mut secret).expect("there is chance");
        Signer::Secret(secret.to_vec())
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Signer::Rsa(_) => "RS256",
            Signer::Ec(_) => "ES256",
            Signer::Ed(_) => "EdDSA",
            Signer::Secret(_) => "HS256",
        }
    }

    /// Returns its public half, as a key set has it.
    pub(crate) fn jwk(&self, id: &str) -> Value {
        match self {
            Signer::Rsa(pair) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = pair.public_key().into();
                json!({ "kty": "RSA", "kid": id, "n": encode(n), "e": encode(e), "use": "sig", "alg": "RS256" })
            }
            Signer::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": encode(x), "y": encode(y) })
            }
            Signer::Ed(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": encode(pair.public_key()) })
            }
            Signer::Secret(secret) => json!({ "kty": "oct", "kid": id, "k": encode(secret) }),
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let chance = rand::SystemRandom::new();
        match self {
            Signer::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &chance, message, &mut signature).expect("it signs");
                signature
            }
            Signer::Ec(pair) => pair.sign(&chance, message).expect("it signs").as_ref().to_vec(),
            Signer::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Signer::Secret(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
            }
        }
    }

    /// Returns a token with exactly this header and these claims.
    pub(crate) fn token(&self, head: &Value, claims: &Value) -> String {
        let mut token = format!("{}.{}", encode(head.to_string()), encode(claims.to_string()));
        let signature = encode(self.sign(token.as_bytes()));
        write!(token, ".{signature}").expect("a string takes it");
        token
    }

    /// Returns a valid token of this caller.
    pub(crate) fn good(&self, id: &str, tenant: &str, caller: &str) -> String {
        self.token(&self.head(id), &claims(tenant, caller))
    }

    /// Returns the header of a valid token.
    pub(crate) fn head(&self, id: &str) -> Value {
        json!({ "typ": "JWT", "alg": self.algorithm(), "kid": id })
    }
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the seconds since 1970.
pub(crate) fn now() -> i64 {
    SystemClock.now().as_millis() / 1000
}

/// Returns the claims of a valid token with a unique id.
pub(crate) fn claims(tenant: &str, caller: &str) -> Value {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let (now, number) = (now(), NUMBER.fetch_add(1, Ordering::SeqCst));
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": caller, "tenant": tenant,
        "iat": now, "nbf": now, "exp": now + 300, "jti": number,
    })
}

/// Returns a payment request with this token.
pub(crate) fn by(token: &str) -> Send {
    pay("{}").with("authorization", format!("Bearer {token}"))
}

/// Returns a key set.
pub(crate) fn set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

/// Returns the settings of a gateway that reads its keys from here.
pub(crate) fn settings(jwks: &str, more: &str) -> String {
    format!(
        "[identity]\nsource = \"jwt\"\njwks = \"{jwks}\"\nissuer = \"{ISSUER}\"\naudience = \"{AUDIENCE}\"\n{more}\n"
    )
}

/// Server for keys, which counts the requests for them.
pub(crate) struct KeyServer {
    pub(crate) address: SocketAddr,
    fetches: AtomicUsize,
    answer: Mutex<(StatusCode, String)>,
}

impl KeyServer {
    pub(crate) async fn start(keys: &[Value]) -> Arc<KeyServer> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let server = Arc::new(KeyServer {
            address: listener.local_addr().expect("it is bound"),
            fetches: AtomicUsize::new(0),
            answer: Mutex::new((StatusCode::OK, set(keys))),
        });
        let app = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/jwks.json", self.address)
    }

    pub(crate) fn say(&self, status: u16, body: String) {
        let status = StatusCode::from_u16(status).expect("it is a status");
        *self.answer.lock().expect("nobody panics with it") = (status, body);
    }

    pub(crate) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

async fn answer(State(server): State<Arc<KeyServer>>) -> (StatusCode, String) {
    server.fetches.fetch_add(1, Ordering::SeqCst);
    server.answer.lock().expect("nobody panics with it").clone()
}
