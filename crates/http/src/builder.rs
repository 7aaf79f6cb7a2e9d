//! The builder of the layer: everything that a service author configures.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Request};
use semel_core::path::{PathException, PathExceptions};
use semel_core::quota::{Limits, Usage};
use semel_core::store::CALL_DEADLINE;
use semel_core::{
    Clock, Evidence, Ids, OperationName, Policy, Principal, RandomIds, Store, SystemClock, Tracer,
};
use tokio::sync::Notify;
use tower::Service;

use crate::ask::{self, Ask};
use crate::body::{Body, BodyRoom, BoxError};
use crate::cache::ReplayCache;
use crate::command;
use crate::holds::HoldBoard;
use crate::identity::{self, Authenticated, Authorize, Denied, Identify, Identifying};
use crate::late::MAX_LISTENERS;
use crate::layer::IdempotencyLayer;
use crate::observe::{self, Observer};
use crate::operation::{ConfigError, Operation};
use crate::operations::Operations;
use crate::quotas::Quotas;
use crate::running::Running;
use crate::shared::{BeforeKeeping, ComputeFingerprint, Shared};
use crate::shares::Shares;
use crate::store_return::StoreReturn;

impl IdempotencyLayer {
    /// Returns a builder of a layer on this store.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder::new(store, |layer| layer)
    }
}

/// Configures a layer, and builds it, or a `T` that is made of it. See [`IdempotencyLayer::builder`].
pub struct Builder<T = IdempotencyLayer> {
    store: Arc<dyn Store>,
    identify: Option<Box<Identify>>,
    authorize: Box<Authorize>,
    before_keeping: Box<BeforeKeeping>,
    ask: Option<Box<Ask>>,
    origins: Vec<Authority>,
    defaults: Policy,
    operations: Vec<Operation>,
    passing: Vec<(String, PathExceptions)>,
    calls: Vec<String>,
    fingerprint: ComputeFingerprint,
    cache_bytes: u64,
    body_bytes: usize,
    answer_bytes: usize,
    store_timeout: Duration,
    body_timeout: Duration,
    limits: Option<Limits>,
    usage: Option<Arc<dyn Usage>>,
    evidence: Option<Arc<dyn Evidence>>,
    holds: Option<Arc<HoldBoard>>,
    tracer: Option<Arc<dyn Tracer>>,
    clock: Box<dyn Clock>,
    ids: Box<dyn Ids>,
    finish: Box<dyn FnOnce(IdempotencyLayer) -> T + Send>,
}

impl<T> Builder<T> {
    /// Returns a builder of the value that `finish` makes of a layer on this store.
    pub fn new(
        store: Arc<dyn Store>,
        finish: impl FnOnce(IdempotencyLayer) -> T + Send + 'static,
    ) -> Builder<T> {
        Builder {
            store,
            identify: None,
            authorize: Box::new(|_, _, _| Box::pin(std::future::ready(Ok(())))),
            before_keeping: Box::new(|_| {}),
            ask: None,
            origins: Vec::new(),
            defaults: Policy::default(),
            operations: Vec::new(),
            passing: Vec::new(),
            calls: Vec::new(),
            fingerprint: command::default_fingerprint,
            cache_bytes: 64 << 20,
            body_bytes: 512 << 20,
            answer_bytes: 512 << 20,
            store_timeout: CALL_DEADLINE,
            body_timeout: Duration::from_secs(60),
            limits: None,
            usage: None,
            evidence: None,
            holds: None,
            tracer: None,
            clock: Box::new(SystemClock),
            ids: Box::new(RandomIds),
            finish: Box::new(finish),
        }
    }

    /// Identifies the caller of a request. A layer without it is not built: there is no anonymous bucket.
    ///
    /// The tenant and the caller must come from authentication: from the request's extensions, if an authentication layer in
    /// front has put them there, or from credentials that are checked here. Never take them from the body, nor from the bytes
    /// of a token that will be rotated.
    pub fn identify(
        mut self,
        identify: impl Fn(&Parts) -> Result<Principal, Denied> + Send + Sync + 'static,
    ) -> Builder<T> {
        self.identify = Some(Box::new(move |parts| Identifying::Now(identify(parts))));
        self
    }

    /// Identifies the caller of a request by asking a service, for an opaque token or a session.
    ///
    /// It replaces [`identify`](Builder::identify). The request waits for the answer: bound it in time, and return
    /// [`Denied::Unavailable`] if there is none.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use semel_core::Principal;
    /// # use semel_http::{Denied, IdempotencyLayer};
    /// # use semel_stores::MemoryStore;
    /// # async fn user_of(_session: String) -> Option<String> { None }
    /// let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
    ///     .identify_async(|request| {
    ///         let session = request.headers.get("x-session").and_then(|value| value.to_str().ok());
    ///         let asked = session.map(|session| user_of(session.to_owned()));
    ///         async move {
    ///             let user = asked.ok_or_else(Denied::unauthenticated)?.await.ok_or_else(Denied::unauthenticated)?;
    ///             Principal::new("acme", &user).map_err(|_| Denied::unauthenticated())
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), semel_http::ConfigError>(())
    /// ```
    pub fn identify_async<F>(mut self, identify: impl Fn(&Parts) -> F + Send + Sync + 'static) -> Builder<T>
    where
        F: Future<Output = Result<Principal, Denied>> + Send + 'static,
    {
        self.identify = Some(Box::new(move |parts| Identifying::Later(Box::pin(identify(parts)))));
        self
    }

    /// Takes the principal from a value of type `U` in the request's extensions, which an authentication layer has put there.
    /// A request without one gets 401.
    ///
    /// The authentication layer goes outside of this one: with axum, the layer that is added last runs first.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use axum::{Router, extract::Request, http::StatusCode, middleware::{Next, from_fn}, response::Response, routing::post};
    /// use semel_core::Principal;
    /// use semel_http::{Authenticated, Denied, IdempotencyLayer};
    ///
    /// #[derive(Clone)]
    /// struct User { company: String, id: u64 }
    ///
    /// impl Authenticated for User {
    ///     fn principal(&self) -> Result<Principal, Denied> {
    ///         Principal::new(&self.company, &self.id.to_string()).map_err(|_| Denied::unauthenticated())
    ///     }
    /// }
    ///
    /// async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    ///     // Your own check of a session or a token.
    ///     request.extensions_mut().insert(User { company: "acme".to_owned(), id: 7 });
    ///     Ok(next.run(request).await)
    /// }
    ///
    /// # fn example(store: Arc<dyn semel_core::Store>) -> Result<(), semel_http::ConfigError> {
    /// let idempotency = IdempotencyLayer::builder(store).identify_extension::<User>().build()?;
    /// let app: Router = Router::new()
    ///     .route("/payments", post(|| async { "charged once" }))
    ///     .layer(idempotency)
    ///     .layer(from_fn(authenticate));
    /// # Ok(())
    /// # }
    /// ```
    pub fn identify_extension<U: Authenticated>(self) -> Builder<T> {
        self.identify(identity::from_extension::<U>)
    }

    /// Authorizes a caller to use an operation. Without it, every identified caller may use all operations.
    ///
    /// It is called before anything is looked up, for every command: for the first request, for each retry, also if its
    /// answer is in memory, and for [the operation's own page](semel_core::problem::OPERATIONS_PATH), once its record has
    /// shown that it belongs to this caller. A caller who lost the right gets no old response either. A worker does not call it
    /// again for a command that was admitted.
    ///
    /// The operation is the one that the rules name; on its page, the one that its record was made under, which may be
    /// a former name. The request waits for the answer: bound it in time, and return [`Denied::Unavailable`] if there is
    /// none.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use semel_core::Principal;
    /// # use semel_http::{Denied, IdempotencyLayer};
    /// # use semel_stores::MemoryStore;
    /// # async fn may(_user: String) -> bool { true }
    /// let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
    ///     .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
    ///     .authorize(|principal, _operation, _request| {
    ///         let asked = may(principal.caller().to_owned());
    ///         async move { if asked.await { Ok(()) } else { Err(Denied::Forbidden) } }
    ///     })
    ///     .build()?;
    /// # Ok::<(), semel_http::ConfigError>(())
    /// ```
    pub fn authorize<F>(
        mut self,
        authorize: impl Fn(&Principal, &OperationName, &Parts) -> F + Send + Sync + 'static,
    ) -> Builder<T>
    where
        F: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        self.authorize =
            Box::new(move |principal, operation, parts| Box::pin(authorize(principal, operation, parts)));
        self
    }

    /// Removes fields from the header of a request that is stored for a worker: credentials under names of your own, for
    /// example. The usual ones are never stored, unless the operation keeps them.
    pub fn before_keeping(
        mut self,
        before_keeping: impl Fn(&mut HeaderMap) + Send + Sync + 'static,
    ) -> Builder<T> {
        self.before_keeping = Box::new(before_keeping);
        self
    }

    /// Fetches results from this service for operations with [`StoreResponse::Reference`](semel_core::policy::StoreResponse),
    /// which store only the address of a result. It is the service that the layer is put around, with all its routes. A retry is
    /// answered with a GET of that address, for the caller who retries, with the header fields and extensions of its request and
    /// a [`Refetch`](crate::Refetch) beside them. The GET has the operation's `timeout`, and at most `max_stored_response` bytes.
    ///
    /// The service must tell paths and methods apart: a single handler would take the GET for its own command.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use axum::Router;
    /// use axum::routing::{get, post};
    /// use semel_core::Principal;
    /// use semel_core::policy::StoreResponse;
    /// use semel_http::{Denied, IdempotencyLayer, Operation};
    ///
    /// # async fn pay() {}
    /// # async fn show() {}
    /// # fn example(store: Arc<dyn semel_core::Store>) -> Result<Router, semel_http::ConfigError> {
    /// let app = Router::new().route("/payments", post(pay)).route("/payments/{id}", get(show));
    /// let payments = Operation::new("payments.create", "POST /payments");
    /// let layer = IdempotencyLayer::builder(store)
    ///     .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
    ///     .operation(payments.with(|policy| policy.store_response = StoreResponse::Reference))
    ///     .results_from(app.clone())
    ///     .build()?;
    /// # Ok(
    /// app.layer(layer)
    /// # )
    /// # }
    /// ```
    pub fn results_from<S, R>(mut self, service: S) -> Builder<T>
    where
        S: Service<Request<Body>, Response = http::Response<R>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        self.ask = Some(ask::asking(service));
        self
    }

    /// Adds a host, with its port if it is not the usual one, that the service has in its addresses, beside the host that a
    /// request is sent to. Addresses elsewhere are given to clients, and never fetched.
    pub fn origin(mut self, authority: Authority) -> Builder<T> {
        self.origins.push(authority);
        self
    }

    /// Sets the policy of commands that match no operation, which is also the base of every operation's policy.
    pub fn defaults(mut self, defaults: Policy) -> Builder<T> {
        self.defaults = defaults;
        self
    }

    /// Adds an operation.
    pub fn operation(mut self, operation: Operation) -> Builder<T> {
        self.operations.push(operation);
        self
    }

    /// Sets the memory for replays; 64 MiB by default.
    pub fn cache_bytes(mut self, bytes: u64) -> Builder<T> {
        self.cache_bytes = bytes;
        self
    }

    /// Sets the memory for the bodies of commands while they are read and executed; 512 MiB by default. Beyond it, commands are
    /// refused with 503.
    pub fn body_bytes(mut self, bytes: usize) -> Builder<T> {
        self.body_bytes = bytes;
        self
    }

    /// Sets the memory for the bodies of answers while they are read and stored, shared by tenant and caller; 512 MiB by
    /// default. An answer beyond it reaches its caller, and retries get its head without the body.
    pub fn answer_bytes(mut self, bytes: usize) -> Builder<T> {
        self.answer_bytes = bytes;
        self
    }

    /// Allows these exceptions in the paths of requests that are no commands; for a command, use [`Operation::allow`]. Without it,
    /// paths that another reader may understand differently are refused.
    ///
    /// The layer puts the path of every request, command or not, into [one form](semel_core::path): the path is matched,
    /// authorized and fingerprinted in that form, and the service sees no other. A path without such a form is refused with 400.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use semel_core::Principal;
    /// # use semel_http::{Denied, IdempotencyLayer};
    /// # use semel_stores::MemoryStore;
    /// use semel_core::path::PathException;
    ///
    /// let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
    ///     .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
    ///     .pass("GET /files/{*name}", [PathException::EncodedSlash])
    ///     .build()?;
    /// # Ok::<(), semel_http::ConfigError>(())
    /// ```
    pub fn pass(
        mut self,
        route: impl Into<String>,
        allow: impl IntoIterator<Item = PathException>,
    ) -> Builder<T> {
        self.passing.push((route.into(), allow.into_iter().collect()));
        self
    }

    /// Passes gRPC calls without a key on unprotected, streams included, if no operation has their route. Every other POST there,
    /// and a call with a key, is a command.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use semel_core::Principal;
    /// # use semel_http::{Denied, IdempotencyLayer};
    /// # use semel_stores::MemoryStore;
    /// let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
    ///     .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
    ///     .pass_grpc("POST /shop.Catalogue/{call}")
    ///     .build()?;
    /// # Ok::<(), semel_http::ConfigError>(())
    /// ```
    pub fn pass_grpc(mut self, route: impl Into<String>) -> Builder<T> {
        self.calls.push(route.into());
        self
    }

    /// Sets the timeout of one store call; 5 s by default. A claim that takes longer is given up, and nothing runs.
    pub fn store_timeout(mut self, timeout: Duration) -> Builder<T> {
        self.store_timeout = timeout;
        self
    }

    /// Sets the timeout for a request's body to arrive; 60 s by default.
    pub fn body_timeout(mut self, timeout: Duration) -> Builder<T> {
        self.body_timeout = timeout;
        self
    }

    /// Sets the quotas of tenants and callers. Without it, there are none.
    ///
    /// A request beyond its quota gets 429 and `Retry-After`; a retry of a known command is not a new key, and goes on.
    /// [`usage`](Builder::usage) counts for all nodes together: each node reports its use once a second, and counts
    /// stored records every five seconds, or less often if that takes long. So a limit holds exactly on one node, and on
    /// several nodes within the use of the others meanwhile. If stored records or bytes are limited, call [`Usage::prepare`]
    /// once before.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use semel_core::Principal;
    /// # use semel_http::{Denied, IdempotencyLayer};
    /// # use semel_stores::MemoryStore;
    /// use semel_core::quota::{Allowance, Limits, Rate};
    ///
    /// let store = Arc::new(MemoryStore::new());
    /// let tenant = Allowance {
    ///     new_keys: Rate::new(500, Duration::from_secs(1)),
    ///     active_keys: Some(1_000_000),
    ///     ..Allowance::default()
    /// };
    /// let layer = IdempotencyLayer::builder(store.clone())
    ///     .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
    ///     .usage(store)
    ///     .limits(Limits { tenant, ..Limits::default() })
    ///     .build()?;
    /// # Ok::<(), semel_http::ConfigError>(())
    /// ```
    pub fn limits(mut self, limits: Limits) -> Builder<T> {
        self.limits = limits.is_anything().then_some(limits);
        self
    }

    /// Sets the counter of all nodes for [`limits`](Builder::limits); every store of Semel is one.
    pub fn usage(mut self, usage: Arc<dyn Usage>) -> Builder<T> {
        self.usage = Some(usage);
        self
    }

    /// Sets the audit log that takes a note if an answer after its timeout contradicts the record; every store of Semel is one.
    /// Without it, a contradiction is only logged and counted.
    pub fn evidence(mut self, evidence: Arc<dyn Evidence>) -> Builder<T> {
        self.evidence = Some(evidence);
        self
    }

    /// Sets the board with the holds of operators. Without it, nothing is held.
    ///
    /// A command of a held operation or tenant gets 503 and `Retry-After`, and claims nothing. A retry of a known command is
    /// answered from its record.
    pub fn holds(mut self, board: Arc<HoldBoard>) -> Builder<T> {
        self.holds = Some(board);
        self
    }

    /// Sets the tracer that takes the spans of commands. Without it, nothing is traced, and `traceparent` reaches the handler as the
    /// client sent it.
    ///
    /// Each command has a span, in the trace that its `traceparent` names, and one for its handler, which gets a `traceparent` of
    /// its own. The sampling decision in the header is believed: a service that clients reach directly rewrites it before.
    pub fn tracer(mut self, tracer: Arc<dyn Tracer>) -> Builder<T> {
        self.tracer = Some(tracer);
        self
    }

    /// Replaces the computation of fingerprints, for tests of a change of version with live records.
    #[doc(hidden)]
    pub fn fingerprint(mut self, fingerprint: ComputeFingerprint) -> Builder<T> {
        self.fingerprint = fingerprint;
        self
    }

    /// Sets the clock of this node, for the age of requests and the time in operation ids.
    pub fn clock(mut self, clock: impl Clock) -> Builder<T> {
        self.clock = Box::new(clock);
        self
    }

    /// Sets the source of identifiers. Attempt tokens must never repeat: two attempts with one token are taken for one.
    pub fn ids(mut self, ids: impl Ids) -> Builder<T> {
        self.ids = Box::new(ids);
        self
    }

    /// Checks the configuration and makes the layer.
    ///
    /// # Errors
    /// The first rule, policy or part of the builder that cannot be used. Its `Debug` is the same sentence as its `Display`, for a
    /// `main` that unwraps it or returns it.
    pub fn build(self) -> Result<T, ConfigError> {
        let identify = self.identify.ok_or(ConfigError::NoIdentity)?;
        let operations = Operations::new(self.defaults, self.operations, self.passing, self.calls)?;
        if let (Some(name), None) = (operations.with_references(), &self.ask) {
            return Err(ConfigError::NoResults(name.to_owned()));
        }
        operations.check_tier(self.store.tier())?;
        let quotas = match (self.limits, self.usage) {
            (None, _) => None,
            (Some(limits), Some(usage)) => Some(Quotas::new(limits, usage, self.store_timeout)),
            (Some(_), None) => return Err(ConfigError::NoUsage),
        };
        let labels = operations.labels();
        observe::begin(labels.rules(), labels.unmatched(), self.clock.now());
        let shared = Shared {
            store: self.store,
            identify,
            authorize: self.authorize,
            before_keeping: self.before_keeping,
            wake: Notify::new(),
            ask: self.ask,
            origins: self.origins,
            operations,
            fingerprint: self.fingerprint,
            cache: ReplayCache::new(self.cache_bytes),
            running: Arc::new(Running::new()),
            back: StoreReturn::default(),
            listeners: Shares::new(MAX_LISTENERS),
            evidence: self.evidence,
            room: BodyRoom::new(self.body_bytes),
            answers: BodyRoom::new(self.answer_bytes),
            store_timeout: self.store_timeout,
            body_timeout: self.body_timeout,
            quotas,
            observer: Observer::new(),
            tracer: self.tracer,
            holds: self.holds,
            clock: self.clock,
            ids: self.ids,
        };
        Ok((self.finish)(IdempotencyLayer::new(shared)))
    }
}
