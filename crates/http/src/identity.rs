//! The caller of a request: the functions of the service author that identify and authorize it, and the answer to a caller
//! that they deny.

use std::future::Future;
use std::pin::Pin;

use http::HeaderValue;
use http::header::WWW_AUTHENTICATE;
use http::request::Parts;
use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_core::scope::PrincipalError;
use semel_core::{OperationName, Principal, Problem};

use crate::answer::{Answer, problems};

/// Reason to refuse a caller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Denied {
    /// The request has no credentials: 401, with this challenge if there is one. An
    /// [anonymous](crate::Operation::anonymous) operation passes the request on if it has no key.
    Anonymous {
        /// The value of `WWW-Authenticate`.
        challenge: Option<HeaderValue>,
    },
    /// The credentials are invalid, or do not name one caller: 401, with this challenge if there is one.
    Unauthenticated {
        /// The value of `WWW-Authenticate`.
        challenge: Option<HeaderValue>,
    },
    /// The caller may not use the operation: 403.
    Forbidden,
    /// The caller cannot be identified or authorized at this moment: 503, and nothing runs.
    Unavailable,
}

impl Denied {
    /// Denies a request without credentials: 401 without a challenge.
    pub fn anonymous() -> Denied {
        Denied::Anonymous { challenge: None }
    }

    /// Denies a request with invalid credentials: 401 without a challenge.
    pub fn unauthenticated() -> Denied {
        Denied::Unauthenticated { challenge: None }
    }

    /// Returns the answer to the caller.
    pub(crate) fn answer(self, profile: Profile) -> Answer {
        match self {
            Denied::Anonymous { challenge } | Denied::Unauthenticated { challenge } => {
                let detail = "The request does not say, or cannot prove, who is asking.";
                let mut answer =
                    Answer::problem(&Problem::new(ProblemKind::Unauthenticated, detail), profile);
                if let Some(challenge) = challenge {
                    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                }
                answer
            }
            Denied::Forbidden => {
                let problem = Problem::new(ProblemKind::Forbidden, "This caller may not use this operation.");
                Answer::problem(&problem, profile)
            }
            Denied::Unavailable => problems::authorization_unavailable(profile),
        }
    }
}

/// A tenant or a caller whose name cannot be used is not authenticated: 401. So `?` serves in `identify`.
impl From<PrincipalError> for Denied {
    fn from(_: PrincipalError) -> Denied {
        Denied::unauthenticated()
    }
}

/// Identifies the caller from the head of a request.
pub(crate) type Identify = dyn Fn(&Parts) -> Identifying + Send + Sync;

/// The principal of a request: known at once, or after a service was asked.
pub(crate) enum Identifying {
    Now(Result<Principal, Denied>),
    Later(Pin<Box<dyn Future<Output = Result<Principal, Denied>> + Send>>),
}

impl Identifying {
    /// Waits for the principal.
    pub(crate) async fn principal(self) -> Result<Principal, Denied> {
        match self {
            Identifying::Now(principal) => principal,
            Identifying::Later(asking) => asking.await,
        }
    }
}

/// Authorizes a caller to use an operation, from the head of a request.
pub(crate) type Authorize = dyn Fn(&Principal, &OperationName, &Parts) -> Pin<Box<dyn Future<Output = Result<(), Denied>> + Send>>
    + Send
    + Sync;

/// A service's own type for an authenticated user, which its authentication layer puts into the request's extensions.
///
/// Read by [`Builder::identify_extension`](crate::Builder::identify_extension).
pub trait Authenticated: Send + Sync + 'static {
    /// Returns the tenant and the caller that own the commands of this user. They stay the same when a token is rotated.
    ///
    /// # Errors
    /// The reason to refuse this user.
    fn principal(&self) -> Result<Principal, Denied>;
}

/// Reads the principal from the extension of type `U`. A request without one is anonymous.
pub(crate) fn from_extension<U: Authenticated>(request: &Parts) -> Result<Principal, Denied> {
    let Some(user) = request.extensions.get::<U>() else {
        let extension = std::any::type_name::<U>();
        tracing::debug!(
            extension,
            "a request has no such extension: is the authentication layer outside of this one?"
        );
        return Err(Denied::anonymous());
    };
    user.principal()
}
