//! An operation, as a service author declares it, and the errors of such a declaration.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use semel_core::operation::OperationNameError;
use semel_core::path::{PathException, PathExceptions};
use semel_core::pointer::PointerError;
use semel_core::policy::{
    InProgress, KeepRequest, KeyRequirement, Mode, OnExpired, OnLeaseExpired, OnServerError, PolicyError,
    Profile, Spelling, StoreResponse,
};
use semel_core::{KeyRules, Policy, Tier, TierTooLow};

/// An operation: the name of the commands of one route, and their differences from the default policy.
///
/// ```
/// use std::time::Duration;
/// use semel_http::Operation;
///
/// let payments = Operation::new("payments.create", "POST /payments")
///     .ttl(Duration::from_secs(7 * 24 * 60 * 60))
///     .exclude("/clientTimestamp");
/// ```
pub struct Operation {
    pub(crate) name: String,
    pub(crate) route: String,
    pub(crate) change: Vec<ChangePolicy>,
    pub(crate) exclude: Vec<String>,
    pub(crate) reference: Option<String>,
    pub(crate) aliases: Vec<String>,
    pub(crate) allow: PathExceptions,
    pub(crate) local: bool,
    pub(crate) anonymous: bool,
}

pub(crate) type ChangePolicy = Box<dyn Fn(&mut Policy) + Send + Sync>;

impl Operation {
    /// Declares the commands that match `route`: a method and a path such as `POST /accounts/{id}/payments`.
    ///
    /// The name becomes part of the scope: live keys of an operation that is renamed look new.
    pub fn new(name: impl Into<String>, route: impl Into<String>) -> Operation {
        Operation {
            name: name.into(),
            route: route.into(),
            change: Vec::new(),
            exclude: Vec::new(),
            reference: None,
            aliases: Vec::new(),
            allow: PathExceptions::default(),
            local: false,
            anonymous: false,
        }
    }

    /// Declares that the handler executes the command in one transaction of its own database, together with the record and the
    /// response (`transact`). The layer reads the request and answers it; it claims nothing itself.
    pub fn local(mut self) -> Operation {
        self.local = true;
        self
    }

    /// Changes the default policy for this operation: for what no setter covers, or for many settings at once.
    pub fn with(mut self, change: impl Fn(&mut Policy) + Send + Sync + 'static) -> Operation {
        self.change.push(Box::new(change));
        self
    }

    /// Leaves the JSON member at this pointer out of the fingerprint.
    pub fn exclude(mut self, pointer: impl Into<String>) -> Operation {
        self.exclude.push(pointer.into());
        self
    }

    /// Reads the business reference at this pointer: a string or number that names the command in the client's business, such as
    /// an order number. No two commands of one tenant and operation may share one, whatever their keys, and however long ago the
    /// first one was.
    pub fn business_reference(mut self, pointer: impl Into<String>) -> Operation {
        self.reference = Some(pointer.into());
        self
    }

    /// Allows an exception in the paths of this operation. Without it, paths that another reader may understand differently are
    /// refused.
    pub fn allow(mut self, exception: PathException) -> Operation {
        self.allow.add(exception);
        self
    }

    /// Passes requests without credentials and without a key on, unprotected, without a caller and without authorization.
    /// Requests with a key, or with credentials that identify no caller, get 401.
    pub fn anonymous(mut self) -> Operation {
        self.anonymous = true;
        self
    }

    /// Adds a former name of this operation: its live records still count. A rename is safe once no process uses the former name
    /// any more.
    pub fn alias(mut self, name: impl Into<String>) -> Operation {
        self.aliases.push(name.into());
        self
    }
}

/// Defines one setter for each field of [`Policy`].
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $field:ident;)*) => {
        impl Operation {
            $(
                $(#[$doc])*
                pub fn $name(self, $name: $type) -> Operation {
                    self.with(move |policy| policy.$field = $name.clone().into())
                }
            )*
        }
    };
}

setters! {
    /// Sets the mode: executed while the client waits, or later by a worker.
    mode: Mode => mode;
    /// Requires a key, makes it optional, or ignores keys.
    key: KeyRequirement => key;
    /// Sets the syntax and the lengths of keys.
    key_rules: KeyRules => key_rules;
    /// Sets the time for which a settled record is kept.
    ttl: Duration => ttl;
    /// Sets the lease of a claim. It is renewed while the handler runs, so it may be shorter than the timeout.
    lease: Duration => lease;
    /// Sets the timeout of the handler.
    timeout: Duration => timeout;
    /// Sets the time for which an answer of another process is still read after the timeout.
    late_answer: Duration => late_answer;
    /// Sets the time for which a concurrent duplicate waits for the first request.
    wait: Duration => wait;
    /// Sets the answer to a duplicate that has waited: 409, or 202 with an address to poll.
    in_progress: InProgress => in_progress;
    /// Sets the meaning of an expired lease.
    on_lease_expired: OnLeaseExpired => on_lease_expired;
    /// Sets the time within which a worker must start an asynchronous command.
    start_within: Duration => start_within;
    /// Sets the time for which the request is kept for operators.
    keep_request: KeepRequest => keep_request;
    /// Keeps every header field of a stored request, credentials included.
    store_credentials: bool => store_credentials;
    /// Adds header fields to those that are stored with a request.
    store_request_headers: Vec<HeaderName> => store_request_headers;
    /// Sets the meaning of 408 and of any status from 500 on.
    on_server_error: OnServerError => on_server_error;
    /// Sets the answer to a retry after the TTL.
    on_expired: OnExpired => on_expired;
    /// Sets the time for which tombstones are kept, where retries after the TTL are refused.
    tombstone_ttl: Duration => tombstone_ttl;
    /// Sets the margin that is added to lease and timeout before "not executed" may free a key.
    quarantine_margin: Duration => quarantine_margin;
    /// Sets the statuses by which the handler says that it did nothing.
    not_executed_statuses: Vec<StatusCode> => not_executed_statuses;
    /// Sets the largest request body, in bytes.
    max_request: usize => max_request;
    /// Sets the age from which a request is refused, by its timestamp header.
    max_request_age: Duration => max_request_age;
    /// Sets the header field that tells when the client made the request.
    timestamp_header: HeaderName => timestamp_header;
    /// Sets the largest response body that is stored for replays, in bytes.
    max_stored_response: usize => max_stored_response;
    /// Stores responses as a whole, without their bodies, or by their address.
    store_response: StoreResponse => store_response;
    /// Adds header fields to those that are never stored.
    store_headers_except: Vec<HeaderName> => store_headers_except;
    /// Sets the meaning of a path that differs from the operation's own by a slash at its end only.
    trailing_slash: Spelling => trailing_slash;
    /// Sets the meaning of a path that differs from the operation's own by upper and lower case only.
    letter_case: Spelling => letter_case;
    /// Requires a store of this tier: a layer on a store that promises less is not built, and commands are refused with 503 while
    /// the store is below it. Replays are still answered.
    needs_tier: Tier => needs_tier;
}

impl Operation {
    /// Follows the habits of the IETF draft or of Stripe's API, the shortest key included.
    pub fn profile(self, profile: Profile) -> Operation {
        self.with(move |policy| policy.follow(profile))
    }
}

/// Error in the configuration of a layer. Each variant names its operation.
///
/// `Debug` is the sentence of `Display`: these errors are unwrapped, or returned from `main`, by the author of the service.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Callers are not identified.
    #[error(
        "nothing says who is asking: name the principal of a request with `identify`, or the type that your authentication \
         puts into its extensions with `identify_extension`"
    )]
    NoIdentity,
    /// The name cannot be used.
    #[error("operation {0:?}: {1}")]
    Name(String, OperationNameError),
    /// Two operations have one name.
    #[error("operation {0:?} is there twice")]
    Repeated(String),
    /// The route is not a method and a path.
    #[error("operation {0:?}: {1:?} is not a method and a path, such as \"POST /payments\"")]
    Route(String, String),
    /// The method never carries a command.
    #[error("operation {0:?}: {1} is never a command")]
    NeverACommand(String, Method),
    /// The path cannot be matched, or another operation's path already matches the same.
    #[error("operation {0:?}: {1}")]
    Path(String, String),
    /// Two former names are one, or one is a name of another operation.
    #[error("operation {0:?}: the former name {1:?} is there twice, or is the name of another operation")]
    Alias(String, String),
    /// A route that requests pass without a rule cannot be used.
    #[error("{0:?}: {1}")]
    Pass(String, String),
    /// The policy cannot be followed.
    #[error("operation {0:?}: {1}")]
    Policy(String, PolicyError),
    /// The pointer cannot be used.
    #[error("operation {0:?}: {1:?}: {2}")]
    Pointer(String, String, PointerError),
    /// The default policy cannot be followed.
    #[error("defaults: {0}")]
    Defaults(PolicyError),
    /// Quotas are set, and nothing counts the use of all nodes.
    #[error("`limits` are set, and nothing counts for all nodes: name the store with `usage`")]
    NoUsage,
    /// The store promises less than an operation needs.
    #[error("{0}: {1}")]
    Tier(String, TierTooLow),
    /// Results cannot be fetched, because no service is named.
    #[error(
        "{0}: `store_response` is \"reference\", and nothing says where results are: name the service with `results_from`"
    )]
    NoResults(String),
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use semel_core::KeySyntax;

    use super::*;

    fn policy_of(operation: &Operation) -> Policy {
        let mut policy = Policy::default();
        operation.change.iter().for_each(|change| change(&mut policy));
        policy
    }

    #[test]
    fn each_setter_changes_its_own_setting_only() {
        macro_rules! check {
            ($($name:ident: $value:expr;)*) => {
                $({
                    let operation = Operation::new("payments.create", "POST /payments").$name($value);
                    let expected = Policy { $name: $value.into(), ..Policy::default() };
                    assert_ne!(expected, Policy::default(), stringify!($name));
                    assert_eq!(policy_of(&operation), expected, stringify!($name));
                })*
            };
        }
        let second = Duration::from_secs(1);
        check! {
            mode: Mode::Async;
            key: KeyRequirement::Ignored;
            key_rules: KeyRules { syntax: KeySyntax::Strict, ..KeyRules::default() };
            ttl: second;
            lease: second;
            timeout: second;
            late_answer: second;
            wait: second;
            in_progress: InProgress::Accepted;
            on_lease_expired: OnLeaseExpired::Rerun;
            start_within: second;
            keep_request: KeepRequest::WhileUnknown;
            store_credentials: true;
            store_request_headers: vec![http::header::VIA];
            on_server_error: OnServerError::Replay;
            on_expired: OnExpired::Refuse;
            tombstone_ttl: second;
            quarantine_margin: second;
            not_executed_statuses: vec![StatusCode::UNAUTHORIZED];
            max_request: 7_usize;
            max_request_age: second;
            timestamp_header: http::header::AGE;
            max_stored_response: 7_usize;
            store_response: StoreResponse::Headers;
            store_headers_except: vec![http::header::VIA];
            trailing_slash: Spelling::Same;
            letter_case: Spelling::Other;
            needs_tier: Tier::One;
        }
    }

    #[test]
    fn a_profile_brings_its_shortest_key() {
        let policy = policy_of(&Operation::new("charges", "POST /v1/charges").profile(Profile::Stripe));
        assert_eq!((policy.profile, policy.key_rules.min_length), (Profile::Stripe, 1));
    }
}
