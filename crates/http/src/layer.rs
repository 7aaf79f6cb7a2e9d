//! How a service author puts the layer together, and what all its clones share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request};
use semel_core::path::{PathException, PathExceptions};
use semel_core::policy::Profile;
use semel_core::problem::Kind;
use semel_core::quota::{Limits, Usage};
use semel_core::{
    Change, Clock, Decision, Evidence, Fingerprint, FingerprintInput, Ids, OperationName, Policy, Principal,
    Problem, RandomIds, Reason, Record, Store, StoreError, SystemClock, Timestamp,
};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::answer::{Answer, problems, replay};
use crate::body::{Body, BoxError, Room};
use crate::cache::ReplayCache;
use crate::fetch::{self, Ask};
use crate::identity::{self, Authenticated};
use crate::late::MAX_LISTENERS;
use crate::observe::{self, Labels};
use crate::operations::{ConfigError, Operation, Operations};
use crate::quotas::{Quotas, UsedUp};
use crate::running::Running;
use crate::service::Idempotency;
use crate::shares::Shares;
use crate::worker::{Worker, WorkerOptions};

/// Why a request is not let in.
#[derive(Clone, Debug)]
pub enum Denied {
    /// The request shows no credentials at all: 401, with this challenge where there is one. An operation that is
    /// [anonymous](Operation::anonymous) passes it on if it has no key.
    Anonymous {
        /// The value of `WWW-Authenticate`.
        challenge: Option<HeaderValue>,
    },
    /// The credentials prove nothing, or are not one caller's: 401, with this challenge where there is one.
    Unauthenticated {
        /// The value of `WWW-Authenticate`.
        challenge: Option<HeaderValue>,
    },
    /// The one who is asking may not: 403.
    Forbidden,
    /// Nobody can say at this moment whether the one who is asking may: 503, and nothing runs.
    Unavailable,
}

impl Denied {
    /// 401 without a challenge, for a request that shows no credentials.
    pub fn anonymous() -> Denied {
        Denied::Anonymous { challenge: None }
    }

    /// 401 without a challenge, for credentials that prove nothing.
    pub fn unauthenticated() -> Denied {
        Denied::Unauthenticated { challenge: None }
    }

    pub(crate) fn answer(self, profile: Profile) -> Answer {
        match self {
            Denied::Anonymous { challenge } | Denied::Unauthenticated { challenge } => {
                let detail = "The request does not say, or cannot prove, who is asking.";
                let problem = Problem::new(Kind::Unauthenticated, detail);
                let mut answer = Answer::problem(&problem, profile);
                if let Some(challenge) = challenge {
                    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                }
                answer
            }
            Denied::Forbidden => {
                let problem = Problem::new(Kind::Forbidden, "This caller may not use this operation.");
                Answer::problem(&problem, profile)
            }
            Denied::Unavailable => problems::authorization_unavailable(profile),
        }
    }
}

/// Says who is asking, from a request's head.
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

/// Says whether the one who is asking may, from a request's head.
pub(crate) type Authorize = dyn Fn(&Principal, &OperationName, &Parts) -> Pin<Box<dyn Future<Output = Result<(), Denied>> + Send>>
    + Send
    + Sync;

/// Takes out of a header what is not to be kept.
pub(crate) type BeforeKeeping = dyn Fn(&mut HeaderMap) + Send + Sync;

/// Makes the commands of a service safe to retry. Clones share their state.
///
/// Put it outside of everything that has an effect, and inside of nothing that changes the request's path.
///
/// ```
/// use std::sync::Arc;
/// use semel_http::{Denied, IdempotencyLayer, Operation};
/// use semel_stores::MemoryStore;
/// use semel_core::Principal;
///
/// let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
///     .identify(|request| {
///         let user = request.headers.get("x-user").and_then(|value| value.to_str().ok());
///         Principal::new("acme", user.unwrap_or_default()).map_err(|_| Denied::unauthenticated())
///     })
///     .operation(Operation::new("payments.create", "POST /payments"))
///     .build()?;
/// # Ok::<(), semel_http::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
}

impl IdempotencyLayer {
    /// Begins a layer on this store.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
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
            fingerprint: |input| input.fingerprint(),
            cache_bytes: 64 << 20,
            body_bytes: 512 << 20,
            answer_bytes: 512 << 20,
            store_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(60),
            limits: None,
            evidence: None,
            clock: Box::new(SystemClock),
            ids: Box::new(RandomIds),
        }
    }

    /// What carries out asynchronous commands with `inner`, the service that this layer is put around. Without one that
    /// [runs](Worker::run), somewhere on the same store, they wait until `start_within` is over, and are given up.
    ///
    /// The service gets the request as the client sent it, but for credentials (unless the operation wants them), trailers
    /// and what belonged to the connection. Its extensions hold an [`Execution`](crate::Execution), which says who
    /// asks, and nothing that the layers in front had put there.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// use axum::{Extension, Router, routing::post};
    /// use semel_core::{Principal, policy::Mode};
    /// use semel_http::{Denied, Execution, IdempotencyLayer, Maintenance, Operation, WorkerOptions};
    ///
    /// async fn make_report(Extension(execution): Extension<Execution>, what: String) -> String {
    ///     format!("{what}, for {}", execution.principal().caller())
    /// }
    ///
    /// # async fn example(store: Arc<dyn semel_core::Store>) -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = IdempotencyLayer::builder(store.clone())
    ///     .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
    ///     .operation(Operation::new("reports.create", "POST /reports").with(|policy| policy.mode = Mode::Async))
    ///     .build()?;
    /// let app = Router::new().route("/reports", post(make_report));
    /// tokio::spawn(layer.worker(app.clone(), WorkerOptions::default()).run());
    /// tokio::spawn(Maintenance::default().run(store));
    /// let app = app.layer(layer.clone());
    /// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    /// axum::serve(listener, app).await?;
    /// layer.shutdown(Duration::from_secs(30)).await; // of the worker, too
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker<S>(&self, inner: S, options: WorkerOptions) -> Worker<S> {
        Worker::new(self.shared.clone(), inner, options)
    }

    /// Ends in good order: claims nothing from now on, waits for what runs, and after `limit` hands what is
    /// left to `Unknown`, so that nobody runs it again unseen. Call it while the server still serves.
    pub async fn shutdown(&self, limit: Duration) -> Shutdown {
        self.shutdown_until(tokio::time::sleep(limit)).await
    }

    /// Ends in good order, as [`shutdown`](Self::shutdown) does, and waits for running commands until `limit` is ready.
    pub async fn shutdown_until(&self, limit: impl Future<Output = ()>) -> Shutdown {
        let running = &self.shared.running;
        running.close();
        let drained = tokio::select! {
            biased;
            () = running.drained() => true,
            () = limit => false,
        };
        let mut abandoning = tokio::task::JoinSet::new();
        for (id, fence) in running.left() {
            let shared = self.shared.clone();
            abandoning.spawn(async move {
                let change = Change::abandon(fence, Reason::ShutDown);
                shared.within("apply", shared.store.apply(&id, &change)).await.map(|answer| answer.decision)
            });
        }
        let mut abandoned = 0;
        while let Some(result) = abandoning.join_next().await {
            match result {
                // Fenced: it came to its end meanwhile.
                Ok(Ok(decision)) => abandoned += usize::from(decision == Decision::Applied),
                Ok(Err(error)) => tracing::warn!(%error, "a command was left to its lease at shutdown"),
                Err(error) => tracing::error!(%error, "a command was left to its lease at shutdown"),
            }
        }
        if let Some(quotas) = &self.shared.quotas {
            quotas.tell().await;
        }
        Shutdown { drained, abandoned }
    }
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Everything that ran came to its end within the limit.
    pub drained: bool,
    /// So many commands were still running, and are `Unknown` now.
    pub abandoned: usize,
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(inner, self.shared.clone())
    }
}

/// Puts a layer together.
pub struct Builder {
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
    fingerprint: fn(&FingerprintInput<'_>) -> Fingerprint,
    cache_bytes: u64,
    body_bytes: usize,
    answer_bytes: usize,
    store_timeout: Duration,
    body_timeout: Duration,
    limits: Option<(Limits, Arc<dyn Usage>)>,
    evidence: Option<Arc<dyn Evidence>>,
    clock: Box<dyn Clock>,
    ids: Box<dyn Ids>,
}

impl Builder {
    /// Says who is asking. A layer without it is not built: there is no anonymous bucket.
    ///
    /// The tenant and the caller must come from authentication: from what an authentication layer in front put
    /// into the request's extensions, or from credentials checked here. Never from the body, and never from
    /// the bytes of a token that will be rotated.
    pub fn identify(
        mut self,
        identify: impl Fn(&Parts) -> Result<Principal, Denied> + Send + Sync + 'static,
    ) -> Builder {
        self.identify = Some(Box::new(move |parts| Identifying::Now(identify(parts))));
        self
    }

    /// Says who is asking, where a service must be asked for it: an opaque token or a session.
    ///
    /// As [`identify`](Builder::identify), which it replaces. The request waits for the answer: bound it in time, and say
    /// [`Denied::Unavailable`] where there is none.
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
    pub fn identify_async<F>(mut self, identify: impl Fn(&Parts) -> F + Send + Sync + 'static) -> Builder
    where
        F: Future<Output = Result<Principal, Denied>> + Send + 'static,
    {
        self.identify = Some(Box::new(move |parts| Identifying::Later(Box::pin(identify(parts)))));
        self
    }

    /// Takes the principal from a value of type `U` in the request's extensions, which an authentication layer has put there.
    /// Requests without one get 401.
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
    /// let idempotency = IdempotencyLayer::builder(store).identify_with_extension::<User>().build()?;
    /// let app: Router = Router::new()
    ///     .route("/payments", post(|| async { "charged once" }))
    ///     .layer(idempotency)
    ///     .layer(from_fn(authenticate));
    /// # Ok(())
    /// # }
    /// ```
    pub fn identify_with_extension<U: Authenticated>(self) -> Builder {
        self.identify(identity::from_extension::<U>)
    }

    /// Says whether the one who is asking may use an operation. Without it, everybody who is known may use all.
    ///
    /// Asked before anything is looked up, for every command: for the first request, for each retry, also where its
    /// answer is in memory, and for [the operation's own page](semel_core::problem::OPERATIONS_PATH), once its record has
    /// shown that it is this caller's. So whoever may not any more gets no old response either. A command that is
    /// left to a worker was let in, and its worker does not ask again.
    ///
    /// The operation is the one that the rules name; on its page, the one that its record was made under, which may be
    /// a former name. The request waits for the answer: bound it in time, and say [`Denied::Unavailable`] where there is
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
    ) -> Builder
    where
        F: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        self.authorize =
            Box::new(move |principal, operation, parts| Box::pin(authorize(principal, operation, parts)));
        self
    }

    /// Takes out of a request's header what is not to be kept with it for a worker: credentials with names of your own,
    /// for example. The usual ones are never kept, unless the operation wants them.
    pub fn before_keeping(
        mut self,
        before_keeping: impl Fn(&mut HeaderMap) + Send + Sync + 'static,
    ) -> Builder {
        self.before_keeping = Box::new(before_keeping);
        self
    }

    /// Where results are fetched from that operations with [`StoreResponse::Reference`](semel_core::policy::StoreResponse)
    /// keep the address of only: the service that the layer is put around, with all its routes. A retry is then answered with
    /// a GET of that address, as the caller who retries, with the header fields and extensions of its request and a
    /// [`Refetch`](crate::Refetch) beside them. It has the operation's `timeout`, and may have `max_stored_response` bytes.
    ///
    /// It must be a service that tells paths and methods apart, and not one handler: a handler that only ever sees its own
    /// command would take the question for one.
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
    pub fn results_from<S, R>(mut self, service: S) -> Builder
    where
        S: Service<Request<Body>, Response = http::Response<R>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        self.ask = Some(fetch::asking(service));
        self
    }

    /// A host, and port if it is not the usual one, that the service itself has in its addresses, beside the one that a
    /// request is sent to. Addresses elsewhere are given to clients, and never fetched.
    pub fn origin(mut self, authority: Authority) -> Builder {
        self.origins.push(authority);
        self
    }

    /// The policy of commands that match no operation, and the base of those that do.
    pub fn defaults(mut self, defaults: Policy) -> Builder {
        self.defaults = defaults;
        self
    }

    /// Adds a rule.
    pub fn operation(mut self, operation: Operation) -> Builder {
        self.operations.push(operation);
        self
    }

    /// How much memory replays may take; 64 MiB by default.
    pub fn cache_bytes(mut self, bytes: u64) -> Builder {
        self.cache_bytes = bytes;
        self
    }

    /// How much memory the bodies of commands may take while they are read and carried out; 512 MiB by default.
    /// Beyond it, commands are refused with 503.
    pub fn body_bytes(mut self, bytes: usize) -> Builder {
        self.body_bytes = bytes;
        self
    }

    /// How much memory the bodies of answers may take while they are read and stored, shared by tenant and caller; 512 MiB by
    /// default. An answer for which there is no room reaches its caller, and retries get its head without the body.
    pub fn answer_bytes(mut self, bytes: usize) -> Builder {
        self.answer_bytes = bytes;
        self
    }

    /// Lets requests pass whose paths have something in them that is refused otherwise, because others may read it in another
    /// way. For requests that are no commands; a command says so with [`Operation::allow`].
    ///
    /// Every request that comes here, command or not, has its path in [one form](semel_core::path): it is matched,
    /// authorised and fingerprinted by it, and the service sees no other. A path without one is refused with 400.
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
    ) -> Builder {
        self.passing.push((route.into(), allow.into_iter().collect()));
        self
    }

    /// Lets gRPC calls without a key pass unprotected, streams included, if no operation has their route. Every other POST there,
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
    pub fn pass_grpc(mut self, route: impl Into<String>) -> Builder {
        self.calls.push(route.into());
        self
    }

    /// How long one call of the store may take; 5 s by default. A claim that takes longer is given up, and
    /// nothing runs.
    pub fn store_timeout(mut self, timeout: Duration) -> Builder {
        self.store_timeout = timeout;
        self
    }

    /// How long a request's body may take to arrive; 60 s by default.
    pub fn body_timeout(mut self, timeout: Duration) -> Builder {
        self.body_timeout = timeout;
        self
    }

    /// How much each tenant and each caller may use. Without it, as much as they like.
    ///
    /// What is used up is answered with 429 and `Retry-After`; a retry of a command that is known is not a new key, and
    /// goes on. `usage`, which every store of ours is, counts for all nodes together: each node tells it once a second what
    /// was used there, and counts what is kept every five seconds, or less often where that takes long. So a limit holds on
    /// one node exactly, and on several within what the others let in meanwhile. Where anything that is kept is limited, call
    /// [`Usage::prepare`] once before.
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
    ///     .limits(Limits { tenant, ..Limits::default() }, store)
    ///     .build()?;
    /// # Ok::<(), semel_http::ConfigError>(())
    /// ```
    pub fn limits(mut self, limits: Limits, usage: Arc<dyn Usage>) -> Builder {
        self.limits = limits.is_anything().then_some((limits, usage));
        self
    }

    /// Where the audit log takes the note that an answer after its timeout contradicts the record, which every store of ours
    /// does. Without it, a contradiction is logged and counted only.
    pub fn evidence(mut self, evidence: Arc<dyn Evidence>) -> Builder {
        self.evidence = Some(evidence);
        self
    }

    /// Another fingerprint than that of the current version. For tests of what a change of version does to live records.
    #[doc(hidden)]
    pub fn fingerprint(mut self, fingerprint: fn(&FingerprintInput<'_>) -> Fingerprint) -> Builder {
        self.fingerprint = fingerprint;
        self
    }

    /// The clock for what this node judges by itself: the age of requests, and the time in operation ids.
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.clock = Box::new(clock);
        self
    }

    /// Where identifiers come from. Attempt tokens must never repeat: two attempts with one token are taken for
    /// one.
    pub fn ids(mut self, ids: impl Ids) -> Builder {
        self.ids = Box::new(ids);
        self
    }

    /// Checks everything and makes the layer.
    ///
    /// # Errors
    /// The first rule, policy or part of the builder that cannot be used. Its `Debug` is the same sentence as its `Display`, for a
    /// `main` that unwraps it or returns it.
    pub fn build(self) -> Result<IdempotencyLayer, ConfigError> {
        let identify = self.identify.ok_or(ConfigError::NoIdentity)?;
        let operations = Operations::new(self.defaults, self.operations, self.passing, self.calls)?;
        if let (Some(name), None) = (operations.with_references(), &self.ask) {
            return Err(ConfigError::NoResults(name.to_owned()));
        }
        operations.check_tier(self.store.tier())?;
        observe::begin_matching(operations.labels(), self.clock.now());
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
            listeners: Shares::new(MAX_LISTENERS),
            evidence: self.evidence,
            room: Room::new(self.body_bytes),
            answers: Room::new(self.answer_bytes),
            store_timeout: self.store_timeout,
            body_timeout: self.body_timeout,
            quotas: self.limits.map(|(limits, usage)| Quotas::new(limits, usage, self.store_timeout)),
            labels: Labels::default(),
            clock: self.clock,
            ids: self.ids,
        };
        Ok(IdempotencyLayer { shared: Arc::new(shared) })
    }
}

/// What all clones of a layer share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) identify: Box<Identify>,
    pub(crate) authorize: Box<Authorize>,
    pub(crate) before_keeping: Box<BeforeKeeping>,
    /// There may be something for a worker of this process.
    pub(crate) wake: Notify,
    /// Asks the service for what a command made.
    pub(crate) ask: Option<Box<Ask>>,
    /// What the service is called, beside what a request calls it.
    pub(crate) origins: Vec<Authority>,
    pub(crate) operations: Operations,
    /// Computes the fingerprint of a request, in each version that records may have.
    pub(crate) fingerprint: fn(&FingerprintInput<'_>) -> Fingerprint,
    pub(crate) cache: ReplayCache,
    pub(crate) running: Arc<Running>,
    /// The places of those who read an answer after its timeout.
    pub(crate) listeners: Shares,
    pub(crate) evidence: Option<Arc<dyn Evidence>>,
    pub(crate) room: Room,
    /// The memory for answers that are read to be stored.
    pub(crate) answers: Room,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) ids: Box<dyn Ids>,
    store_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) labels: Labels,
    pub(crate) quotas: Option<Arc<Quotas>>,
}

impl Shared {
    /// Takes a look-up of this principal, if there is one left.
    pub(crate) async fn look_up(&self, principal: &Principal) -> Result<(), Problem> {
        let Some(quotas) = &self.quotas else { return Ok(()) };
        match quotas.look_up(principal).await {
            Ok(taken) => taken.map_err(UsedUp::problem),
            Err(error) => {
                tracing::warn!(%error, "a quota could not be checked: nothing is looked up");
                Err(problems::store_unavailable_problem())
            }
        }
    }

    /// So many bytes are kept with this record from now on.
    pub(crate) fn stored(&self, record: &Record, bytes: usize) {
        if let Some(quotas) = &self.quotas {
            quotas.stored(&record.principal, bytes);
        }
    }

    /// A store call, bounded in time. One that took too long may still have been made.
    pub(crate) async fn within<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let result = match tokio::time::timeout(self.store_timeout, call).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Ambiguous("the store did not answer in time".into())),
        };
        observe::store_call(name, begun.elapsed(), result.as_ref().err());
        result
    }

    /// Replays a settled record, and remembers it for the next time if `asked` says when the store was asked.
    pub(crate) fn replay(
        &self,
        record: &Record,
        now: Timestamp,
        asked: Option<Instant>,
        policy: &Policy,
    ) -> Answer {
        let Some(response) = record.result.as_ref().and_then(|result| result.response.decode().ok()) else {
            tracing::error!(operation_id = %record.operation_id, "a stored response cannot be read");
            return problems::unreadable(record, policy);
        };
        if let Some(asked) = asked {
            self.cache.keep(record, now, asked);
        }
        replay::replay(record, &response, policy)
    }
}
