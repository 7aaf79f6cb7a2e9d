//! An operation, as a service author declares it, and the errors of such a declaration.

use std::fmt;

use http::Method;
use semel_core::operation::OperationNameError;
use semel_core::path::{PathException, PathExceptions};
use semel_core::pointer::PointerError;
use semel_core::policy::PolicyError;
use semel_core::{Policy, Tier, TierTooLow};

/// An operation: the name of the commands of one route, and their differences from the default policy.
///
/// ```
/// use std::time::Duration;
/// use semel_http::Operation;
///
/// let payments = Operation::new("payments.create", "POST /payments")
///     .with(|policy| policy.ttl = Duration::from_secs(7 * 24 * 60 * 60))
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

    /// Changes the default policy for this operation.
    pub fn with(mut self, change: impl Fn(&mut Policy) + Send + Sync + 'static) -> Operation {
        self.change.push(Box::new(change));
        self
    }

    /// Requires a store of this tier: a layer on a store that promises less is not built, and commands are refused with 503 while
    /// the store is below it. Replays are still answered.
    pub fn needs_tier(self, tier: Tier) -> Operation {
        self.with(move |policy| policy.needs_tier = tier)
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

/// Error in the configuration of a layer. Each variant names its operation.
///
/// `Debug` is the sentence of `Display`: these errors are unwrapped, or returned from `main`, by the author of the service.
#[derive(thiserror::Error)]
pub enum ConfigError {
    /// Callers are not identified.
    #[error(
        "nothing says who is asking: name the principal of a request with `identify`, or the type that your authentication \
         puts into its extensions with `identify_with_extension`"
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
