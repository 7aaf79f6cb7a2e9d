//! Every setting there is. Help, `config show`, `config init` and the reader all follow these tables.

use std::net::SocketAddr;

use http::{HeaderName, StatusCode, Uri};
use semel_core::Plaintext;
use semel_core::key::MAX_FIELD_BYTES;
use semel_core::path::PathException;
use semel_core::policy::{
    InProgress, KeyRequirement, MAX_STORED_RESPONSE, Mode, OnExpired, OnLeaseExpired, OnServerError, Profile,
    Spelling, StoreResponse,
};
use semel_core::{JsonPointer, KeySyntax, OperationName, Policy, Tier};
use semel_flow::reconcile::http::{Gone, NotFound};
use semel_flow::reconcile::ledger::Format;
use semel_outgoing::Address;

use super::admin::{HostName, Role, TokenName, TokenTable};
use super::authorization::Authorization;
use super::client_certificate::CertificateField;
use super::cors::{CorsOrigin, Preflight};
use super::encryption::{CommandLine, EncryptionTable, FilePath, KeyId, KeyTable};
use super::hosts::ServiceHost;
use super::identity::{IdentitySource, IdentityTable};
use super::introspection::{CookieName, Presentation};
use super::jwt::{Claim, KeySource, SigningAlgorithm};
use super::kind::{Choice, Kind, List, Maybe, OneOrMore, OrOff, Words};
use super::ledger::{ConditionKind, LedgerTable, Text};
use super::limits::{Keys, LimitTable, Name, PerTime, Volume};
use super::look_up::{GoodStatus, LookUpTable, LookUpUrl, VariableName, Word};
use super::operation::{OperationTable, Route};
use super::pass::{Exemption, PassRoute, PassTable};
use super::proxies::{ForwardedMode, ProxyRange};
use super::scalar::{Count, Period, Size, SizeUpTo, Switch, Tries, Wait};
use super::server::UpgradeProtocol;
use super::setting::{Setting, SettingInfo, setting};
use super::tls::{TlsTable, UpstreamTlsTable};
use super::webhook::{ProofName, SchemeName, UnknownOperation, WebhookName, WebhookTable};
use super::{Config, LogFormat, StoreLocation, UpstreamProtocol, UpstreamReuse};

/// The top level.
pub(super) const GENERAL: &[Setting<Config>] = &[
    setting!("listen", SocketAddr, listen, "Where clients connect"),
    setting!("admin_listen", SocketAddr, admin_listen, "Where operators and monitoring connect"),
    setting!(
        "admin_hosts",
        List<HostName>,
        admin_hosts,
        "Without [[admin.token]]: by which names browsers may ask for admin_listen, beside localhost and its address"
    ),
    setting!(
        "hosts",
        List<ServiceHost>,
        hosts,
        "The names of the service: other hosts get 421, and the upstream gets Host as it came; without any, its own"
    ),
    setting!(
        "forwarded",
        Choice<ForwardedMode>,
        forwarded,
        "X-Forwarded-For, -Proto, -Host and Forwarded from a trusted proxy: replaced, appended to, or passed on as they came"
    ),
    setting!(
        "forwarded_from",
        List<ProxyRange>,
        forwarded_from,
        "The proxies that are trusted for that, beside trusted_proxies of [identity]; any other peer's fields are replaced"
    ),
    setting!("upstream", Uri, upstream, "The service that commands are passed on to"),
    setting!("upstream_protocol", Choice<UpstreamProtocol>, upstream_protocol, "What the upstream speaks"),
    setting!(
        "upstream_reuse",
        Choice<UpstreamReuse>,
        upstream_reuse,
        "Whether a connection to the upstream is used again: for the same caller, or never"
    ),
    setting!(
        "upgrade",
        List<Choice<UpgradeProtocol>>,
        upgrade,
        "The protocols that a connection may switch to: websocket, or an empty list"
    ),
    setting!("store", StoreLocation, store, "Where records are kept: memory:, sqlite:PATH or postgres://…"),
    setting!("log_format", Choice<LogFormat>, log_format, "How log lines are written"),
    setting!("drain", Wait, drain, "How long a shutdown waits for running commands"),
];

/// `[server]`. The smallest head is the smallest buffer that hyper reads one into.
pub(super) const SERVER: &[Setting<Config>] = &[
    setting!("max_connections", Count<1, 1_000_000>, server.max_connections, "The most connections at a time"),
    setting!("head_timeout", Period, server.head_timeout, "The longest a request's head may take to arrive"),
    setting!("body_timeout", Period, server.body_timeout, "The longest silence inside a request's body"),
    setting!("idle_timeout", Period, server.idle_timeout, "How long a connection is kept between requests"),
    setting!("max_head", Size<8192>, server.max_head, "The largest head of a request"),
    setting!(
        "tunnel_idle_timeout",
        Period,
        server.tunnels.idle,
        "The longest silence of both sides after a switch of protocols"
    ),
    setting!(
        "tunnel_lifetime",
        Period,
        server.tunnels.total,
        "The longest life of a connection after a switch of protocols"
    ),
];

/// `[cors]`.
pub(super) const CORS: &[Setting<Config>] = &[
    setting!(
        "origins",
        List<CorsOrigin>,
        cors.origins,
        "The origins whose pages may read the gateway's own answers, or \"*\"; those of the upstream are its own affair"
    ),
    setting!("credentials", Switch, cors.credentials, "Whether browsers may send cookies with such requests"),
    setting!(
        "preflight",
        Choice<Preflight>,
        cors.preflight,
        "Who answers the preflights of commands and other routes of the upstream"
    ),
    setting!("max_age", Wait, cors.max_age, "How long browsers remember the gateway's answer to a preflight"),
];

/// `[identity]`.
pub(super) const IDENTITY: &[Setting<IdentityTable>] = &[
    setting!(
        "source",
        Choice<IdentitySource>,
        source,
        "Where tenant and caller come from (none: on loopback only)"
    ),
    setting!(
        "trusted_proxies",
        Maybe<List<ProxyRange>>,
        trusted_proxies,
        "With trusted-headers: the only peers that may speak for a caller",
        "[\"127.0.0.1\", \"10.0.0.0/8\"]"
    ),
    setting!(
        "tenant_header",
        Maybe<HeaderName>,
        tenant_header,
        "With trusted-headers: the header that names the tenant",
        "\"X-Tenant\""
    ),
    setting!(
        "caller_header",
        Maybe<HeaderName>,
        caller_header,
        "With trusted-headers: the header that names the caller",
        "\"X-Caller\""
    ),
    setting!(
        "jwks",
        Maybe<KeySource>,
        jwt.jwks,
        "With jwt: the issuer's keys, in a file or at an http(s):// address",
        "\"https://issuer.example/jwks.json\""
    ),
    setting!(
        "issuer",
        Maybe<Text>,
        jwt.issuer,
        "With jwt: who makes the tokens, as their iss says it",
        "\"https://issuer.example\""
    ),
    setting!(
        "audience",
        Maybe<Text>,
        jwt.audience,
        "With jwt: for whom they are made, as their aud says it",
        "\"payments\""
    ),
    setting!(
        "algorithms",
        List<Choice<SigningAlgorithm>>,
        jwt.algorithms,
        "With jwt: how tokens may be signed, each RS256, ES256, EdDSA or HS256"
    ),
    setting!(
        "tenant_claim",
        Claim,
        jwt.tenant_claim,
        "With jwt and introspection: the claim that names the tenant, or a JSON Pointer to it"
    ),
    setting!(
        "caller_claim",
        Claim,
        jwt.caller_claim,
        "With jwt and introspection: the claim that names the caller, or a JSON Pointer to it"
    ),
    setting!("leeway", Wait, jwt.leeway, "With jwt: how far the issuer's clock may be from this one"),
    setting!(
        "jwks_refresh",
        Period,
        jwt.jwks_refresh,
        "With jwt: how often keys are fetched from an address"
    ),
    setting!(
        "max_token",
        Size<256>,
        jwt.max_token,
        "With jwt and introspection: the longest token or session"
    ),
    setting!(
        "introspection_url",
        Maybe<Address>,
        introspection.url,
        "With introspection: who is shown a token or a session, and names its tenant and caller",
        "\"https://auth.example/introspect\""
    ),
    setting!(
        "introspection_request",
        Choice<Presentation>,
        introspection.presentation,
        "With introspection: how it is shown: posted as a form (RFC 7662), or in a GET with the client's own header field"
    ),
    setting!(
        "introspection_cookie",
        Maybe<CookieName>,
        introspection.cookie,
        "With introspection: the cookie that holds a session; without it, bearer tokens only",
        "\"session\""
    ),
    setting!(
        "introspection_authorization_env",
        Maybe<VariableName>,
        introspection.authorization_env,
        "With introspection: the variable with the gateway's own value of the header Authorization",
        "\"INTROSPECTION_AUTHORIZATION\""
    ),
    setting!(
        "introspection_timeout",
        Period,
        introspection.timeout,
        "With introspection: how long the answer may take; then nothing runs"
    ),
    setting!(
        "introspection_cache",
        Wait,
        introspection.cache,
        "With introspection: how long a tenant and caller are remembered, under a digest of the token"
    ),
    setting!(
        "introspection_refusal_cache",
        Wait,
        introspection.refusal_cache,
        "With introspection: how long a refusal is remembered; never longer than introspection_cache"
    ),
    setting!(
        "ca",
        Maybe<FilePath>,
        tls.ca,
        "With jwks or introspection_url at https://: the file with the authorities that its certificate is checked against, instead of the system's",
        "\"/etc/semel/ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        tls.certificate,
        "With jwks or introspection_url at https://: the file with the certificate that it is shown",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        tls.key,
        "With jwks or introspection_url at https://: the file with the private key of that certificate",
        "\"/etc/semel/gateway.key\""
    ),
    setting!(
        "tenant_field",
        Choice<CertificateField>,
        certificate.tenant_field,
        "With client-certificate: the part of a certificate that names the tenant"
    ),
    setting!(
        "caller_field",
        Choice<CertificateField>,
        certificate.caller_field,
        "With client-certificate: the part of a certificate that names the caller"
    ),
    setting!(
        "fixed_tenant",
        Maybe<Name>,
        certificate.fixed_tenant,
        "With client-certificate and introspection: the one tenant of all callers, instead of tenant_field or tenant_claim",
        "\"acme\""
    ),
];

/// `[defaults]`; an `[[operation]]` may override each.
pub(super) const DEFAULTS: &[Setting<Policy>] = &[
    setting!("mode", Choice<Mode>, mode, "When a command is carried out"),
    setting!("start_within", Period, start_within, "How long a command of mode async may wait to be started"),
    setting!(
        "store_credentials",
        Switch,
        store_credentials,
        "Whether a command of mode async keeps every field of its request, credentials included, until it is carried out"
    ),
    setting!(
        "store_request_headers",
        List<HeaderName>,
        store_request_headers,
        "Fields that a command of mode async keeps of its request beside those of content, negotiation and tracing"
    ),
    setting!("key", Choice<KeyRequirement>, key, "Whether a command must carry a key"),
    setting!("key_syntax", Choice<KeySyntax>, key_rules.syntax, "How keys may be spelled"),
    setting!(
        "key_min_length",
        Count<1, MAX_FIELD_BYTES>,
        key_rules.min_length,
        "The fewest characters of a key; with profile stripe the default is 1"
    ),
    setting!("key_max_length", Count<1, MAX_FIELD_BYTES>, key_rules.max_length, "The most characters of a key"),
    setting!(
        "profile",
        Choice<Profile>,
        profile,
        "The form of problem answers: problem documents of the IETF, or errors of Stripe"
    ),
    setting!("ttl", Period, ttl, "How long a settled record is kept, from completion"),
    setting!("lease", Period, lease, "How long a claim holds; renewed while the command runs"),
    setting!("timeout", Period, timeout, "The longest one call of the upstream may take"),
    setting!(
        "late_answer",
        OrOff<Period>,
        late_answer,
        "How long an answer is still read after timeout, if the request was sent whole"
    ),
    setting!("wait", Wait, wait, "How long a concurrent duplicate waits for the winner"),
    setting!(
        "in_progress",
        Choice<InProgress>,
        in_progress,
        "What a duplicate gets while the first still runs"
    ),
    setting!("on_lease_expired", Choice<OnLeaseExpired>, on_lease_expired, "What a lease that ended means"),
    setting!(
        "on_server_error",
        Choice<OnServerError>,
        on_server_error,
        "What a 408 or 5xx of the upstream means"
    ),
    setting!("on_expired", Choice<OnExpired>, on_expired, "What a retry after the ttl gets"),
    setting!("tombstone_ttl", Period, tombstone_ttl, "How long on_expired = \"refuse\" remembers a key"),
    setting!(
        "quarantine_margin",
        Wait,
        quarantine_margin,
        "Added to lease, timeout and late_answer before a verdict of not-executed may free a key"
    ),
    setting!(
        "not_executed_statuses",
        List<StatusCode>,
        not_executed_statuses,
        "Answers by which the upstream says that it did nothing"
    ),
    setting!("max_request", Size<0>, max_request, "The largest body of a command"),
    setting!(
        "max_request_age",
        OrOff<Period>,
        max_request_age,
        "How old a request may be by its timestamp_header"
    ),
    setting!(
        "timestamp_header",
        HeaderName,
        timestamp_header,
        "The header that says when a request was made"
    ),
    setting!(
        "max_stored_response",
        SizeUpTo<MAX_STORED_RESPONSE>,
        max_stored_response,
        "The largest response kept for replays"
    ),
    setting!(
        "store_response",
        Choice<StoreResponse>,
        store_response,
        "What is stored of a response: all of it, its head, or the address of what was made"
    ),
    setting!(
        "store_headers_except",
        List<HeaderName>,
        store_headers_except,
        "Header fields that are never stored, beside credentials"
    ),
    setting!(
        "trailing_slash",
        Choice<Spelling>,
        trailing_slash,
        "What a path is that differs from an operation's by a slash at the end only: refused, the same, or another"
    ),
    setting!(
        "letter_case",
        Choice<Spelling>,
        letter_case,
        "What a path is that differs from an operation's by upper and lower case only: refused, the same, or another"
    ),
    setting!("needs_tier", Tier, needs_tier, "The tier that the store must promise for a command to run"),
];

/// `[defaults]` too, beside those of [`DEFAULTS`]: who is asked whether a caller may.
pub(super) const AUTHORIZATION: &[Setting<Authorization>] = &[
    setting!(
        "authorize_url",
        OrOff<Address>,
        url,
        "Who is asked whether a caller may, for each command and each replay"
    ),
    setting!("authorize_timeout", Period, timeout, "How long that answer may take; then nothing runs"),
    setting!("authorize_cache", Wait, cache, "How long a yes is remembered, for a caller and an operation"),
    setting!(
        "authorize_ca",
        OrOff<FilePath>,
        tls.ca,
        "With authorize_url at https://: the file with the authorities that its certificate is checked against, instead of the system's"
    ),
    setting!(
        "authorize_certificate",
        OrOff<FilePath>,
        tls.certificate,
        "With authorize_url at https://: the file with the certificate that it is shown"
    ),
    setting!(
        "authorize_key",
        OrOff<FilePath>,
        tls.key,
        "With authorize_url at https://: the file with the private key of that certificate"
    ),
];

/// `[[operation]]`, beside those of [`DEFAULTS`] and [`AUTHORIZATION`].
pub(super) const OPERATION: &[Setting<OperationTable>] = &[
    setting!(
        "name",
        Maybe<OperationName>,
        name,
        "Names its records: a new name makes live keys look new",
        "\"payments.create\""
    ),
    setting!(
        "match",
        Maybe<Route>,
        route,
        "Which requests are meant: a method and a path",
        "\"POST /payments\""
    ),
    setting!(
        "business_reference",
        Maybe<JsonPointer>,
        business_reference,
        "The member of the body that may be used once only",
        "\"/externalReference\""
    ),
    setting!(
        "fingerprint_exclude",
        List<JsonPointer>,
        exclude,
        "Members of the body that may differ between retries",
        "[\"/clientTimestamp\"]"
    ),
    setting!(
        "aliases",
        List<OperationName>,
        aliases,
        "Former names: their live records still count",
        "[\"POST /payments\"]"
    ),
    setting!(
        "allow",
        List<Choice<PathException>>,
        allow,
        "What its paths may have that is refused otherwise, because others may read it in another way",
        "[\"encoded-slash\"]"
    ),
    setting!(
        "anonymous",
        Switch,
        anonymous,
        "Whether callers without credentials are passed on, unprotected and without a name, if they send no key"
    ),
];

/// `[operation.reconcile]`.
pub(super) const LOOK_UP: &[Setting<LookUpTable>] = &[
    setting!(
        "url",
        Maybe<LookUpUrl>,
        url,
        "Where a provider is asked about a command: {operation_id}, {tenant} and {caller} stand for its own",
        "\"https://provider.example/charges?reference={operation_id}\""
    ),
    setting!(
        "authorization_env",
        Maybe<VariableName>,
        authorization_env,
        "The variable with the value of the header Authorization",
        "\"PROVIDER_TOKEN\""
    ),
    setting!(
        "deduplicates",
        Switch,
        reading.deduplicates,
        "Whether the provider deduplicates on our operation id: not-executed then frees a key at once"
    ),
    setting!(
        "result",
        Maybe<JsonPointer>,
        reading.result,
        "Where in the answer the object is that stands for the command; if it is missing, it was not found",
        "\"/0\""
    ),
    setting!(
        "reference",
        Maybe<JsonPointer>,
        reading.reference,
        "Where in that object the operation id is, to be sure that it is about this command",
        "\"/reference\""
    ),
    setting!(
        "status",
        Maybe<JsonPointer>,
        reading.status,
        "Where in that object is what became of it; without it, what is found took place",
        "\"/status\""
    ),
    setting!(
        "executed",
        List<Word>,
        reading.executed,
        "What its status is if it took place",
        "[\"captured\"]"
    ),
    setting!(
        "failed",
        List<Word>,
        reading.failed,
        "What its status is if it failed for good",
        "[\"declined\"]"
    ),
    setting!(
        "pending",
        List<Word>,
        reading.pending,
        "What its status is while the provider is still at it",
        "[\"processing\"]"
    ),
    setting!(
        "not_found",
        Choice<NotFound>,
        reading.not_found,
        "What it means that the provider does not know the command"
    ),
    setting!(
        "gone",
        Choice<Gone>,
        reading.gone,
        "What it means that the provider answers 410: nothing, or a tombstone if the reference is in the answer"
    ),
    setting!(
        "response",
        Maybe<JsonPointer>,
        reading.response,
        "Where in that object the body is that retries get; without it, the object",
        "\"/receipt\""
    ),
    setting!(
        "response_status",
        GoodStatus,
        reading.response_status,
        "The status that retries get if it took place"
    ),
    setting!("failed_status", StatusCode, reading.failed_status, "The status that retries get if it failed"),
    setting!("timeout", Period, timeout, "The longest one look-up may take"),
    setting!(
        "ca",
        Maybe<FilePath>,
        tls.ca,
        "With an https:// address: the file with the authorities that its certificate is checked against, instead of the system's",
        "\"/etc/semel/ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        tls.certificate,
        "With an https:// address: the file with the certificate that it is shown",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        tls.key,
        "With an https:// address: the file with the private key of that certificate",
        "\"/etc/semel/gateway.key\""
    ),
];

/// `[[pass]]`.
pub(super) const PASS: &[Setting<PassTable>] = &[
    setting!(
        "match",
        Maybe<PassRoute>,
        route,
        "Which requests are meant: a method and a path",
        "\"GET /search/{*rest}\""
    ),
    setting!(
        "allow",
        List<Choice<Exemption>>,
        allow,
        "What they may have although it is refused everywhere else: body; grpc: calls without a key",
        "[\"body\"]"
    ),
];

/// `[[webhook]]`.
pub(super) const WEBHOOK: &[Setting<WebhookTable>] = &[
    setting!(
        "name",
        Maybe<WebhookName>,
        name,
        "Its path is /.well-known/semel/webhooks/ and this name",
        "\"provider\""
    ),
    setting!(
        "secret_env",
        OneOrMore<VariableName>,
        secret_env,
        "The variable with the secret that signs its events; several while it is exchanged",
        "\"PROVIDER_WEBHOOK_SECRET\""
    ),
    setting!("scheme", Choice<SchemeName>, scheme, "How its events are signed"),
    setting!(
        "signature_header",
        Maybe<HeaderName>,
        signature_header,
        "With scheme = \"body\": the header with the signature, if not X-Hub-Signature-256",
        "\"X-Signature\""
    ),
    setting!(
        "operations",
        List<OperationName>,
        operations,
        "The operations that it may speak about",
        "[\"payments.create\"]"
    ),
    setting!(
        "tenants",
        List<Word>,
        tenants,
        "The tenants that it may speak about; without it, all of them",
        "[\"acme\"]"
    ),
    setting!(
        "event_id",
        Maybe<JsonPointer>,
        event_id,
        "Where in an event its id is; with scheme = \"semel\" the header Semel-Event-Id will do",
        "\"/id\""
    ),
    setting!(
        "operation_id",
        Maybe<JsonPointer>,
        operation_id,
        "Where in an event the operation id is, or a key that begins with it and a colon",
        "\"/data/reference\""
    ),
    setting!(
        "attempt",
        Maybe<JsonPointer>,
        attempt,
        "Where in an event the attempt is, if the provider repeats what it got in Semel-Attempt",
        "\"/data/attempt\""
    ),
    setting!(
        "verdict",
        Maybe<JsonPointer>,
        verdict,
        "Where in an event is what became of the command",
        "\"/type\""
    ),
    setting!("executed", List<Word>, executed, "What is there if it took place", "[\"charge.captured\"]"),
    setting!("failed", List<Word>, failed, "What is there if it failed for good", "[\"charge.declined\"]"),
    setting!(
        "not_executed",
        List<Word>,
        not_executed,
        "What is there if it did not take place; needs a proof",
        "[\"charge.cancelled\"]"
    ),
    setting!(
        "proof",
        Maybe<Choice<ProofName>>,
        proof,
        "Why not_executed cannot be overtaken: the provider deduplicates on our operation id, or holds a tombstone",
        "\"tombstone\""
    ),
    setting!(
        "deduplicates",
        Switch,
        deduplicates,
        "Whether the provider deduplicates on our operation id: an effect of an earlier attempt is then no second one"
    ),
    setting!(
        "response",
        Maybe<JsonPointer>,
        response,
        "Where in an event the body is that retries get; without it, the event",
        "\"/data\""
    ),
    setting!("response_status", GoodStatus, response_status, "The status that retries get if it took place"),
    setting!("failed_status", StatusCode, failed_status, "The status that retries get if it failed"),
    setting!("tolerance", Period, tolerance, "How long ago, or how far ahead, an event may have been signed"),
    setting!(
        "unknown_operation",
        Choice<UnknownOperation>,
        unknown_operation,
        "What becomes of an event about a command that there is not: 404, or kept for it and 202"
    ),
    setting!(
        "step",
        Maybe<Word>,
        step,
        "What follows the operation id and a colon, where events name it so",
        "\"charge\""
    ),
];

/// `[reconcile]`.
pub(super) const RECONCILE: &[Setting<Config>] = &[
    setting!(
        "interval",
        Period,
        reconcile.interval,
        "How often commands are looked for whose outcome is unknown"
    ),
    setting!(
        "first_delay",
        Period,
        reconcile.terms.first_delay,
        "The wait after the first look; it doubles each time"
    ),
    setting!("max_delay", Period, reconcile.terms.max_delay, "The longest wait between two looks"),
    setting!(
        "max_attempts",
        Tries<1, 10_000>,
        reconcile.terms.max_attempts,
        "After so many, a command is left to an operator"
    ),
    setting!("concurrency", Count<1, 1000>, reconcile.concurrency, "How many look-ups are made at the same time"),
    setting!(
        "retention",
        Period,
        reconcile.retention,
        "How long events are kept, to be recognised when they come again"
    ),
];

/// `[maintenance]`.
pub(super) const MAINTENANCE: &[Setting<Config>] = &[
    setting!("sweep_interval", Period, maintenance.sweep_interval, "How often ended leases are looked for"),
    setting!("reap_interval", Period, maintenance.reap_interval, "How often expired records are removed"),
    setting!("reap_batch", Count<1, 100_000>, maintenance.reap_batch, "How many are removed at a time"),
];

/// `[ledger]`.
pub(super) const LEDGER: &[Setting<LedgerTable>] = &[
    setting!(
        "theirs",
        Maybe<Text>,
        settings.theirs,
        "What others say was done: a file, or an address that answers with one",
        "\"http://127.0.0.1:4000/charges.ndjson\""
    ),
    setting!("ours", Text, settings.ours, "What we believe was done: store, or a file"),
    setting!("interval", Period, interval, "How long from one comparison to the next"),
    setting!("first_after", Wait, first_after, "How long from the start to the first comparison"),
    setting!(
        "reference",
        Maybe<Text>,
        settings.reference,
        "The column or member that both know an entry by",
        "\"reference\""
    ),
    setting!(
        "compare",
        List<Text>,
        settings.compare,
        "Columns or members that must be the same; with a file as ours"
    ),
    setting!(
        "time",
        Maybe<Text>,
        settings.time,
        "The column or member that says when an entry was made",
        "\"createdAt\""
    ),
    setting!(
        "their_reference",
        Maybe<Text>,
        settings.their_reference,
        "What the reference is called in theirs, if otherwise",
        "\"idempotencyKey\""
    ),
    setting!(
        "their_compare",
        List<Text>,
        settings.their_compare,
        "What compare is called in theirs, if otherwise"
    ),
    setting!(
        "their_time",
        Maybe<Text>,
        settings.their_time,
        "What the time is called in theirs, if otherwise",
        "\"created\""
    ),
    setting!(
        "our_filter",
        List<ConditionKind>,
        settings.our_filter,
        "Which of our entries count: NAME=VALUE"
    ),
    setting!(
        "their_filter",
        List<ConditionKind>,
        settings.their_filter,
        "Which of their entries count: NAME=VALUE"
    ),
    setting!(
        "strip_suffix",
        Maybe<Text>,
        settings.strip_suffix,
        "Their references end where this first stands in them",
        "\":\""
    ),
    setting!(
        "operation",
        Maybe<Text>,
        settings.operation,
        "With ours from the store: only records of this operation",
        "\"payments.create\""
    ),
    setting!("grace", Wait, settings.grace, "What is younger is not missed: it may be on its way"),
    setting!("max_age", OrOff<Period>, settings.max_age, "What is older is not missed: it may be forgotten"),
    setting!(
        "format",
        Maybe<Choice<Format>>,
        settings.format,
        "How both are written, if their names do not say so",
        "\"csv\""
    ),
    setting!(
        "their_format",
        Maybe<Choice<Format>>,
        settings.their_format,
        "How theirs is written, if otherwise",
        "\"ndjson\""
    ),
    setting!(
        "authorization_env",
        Maybe<Text>,
        settings.authorization_env,
        "With an address: the variable that holds the value of Authorization",
        "\"PROVIDER_AUTHORIZATION\""
    ),
    setting!("timeout", Period, settings.timeout, "The longest that reading from an address may take"),
    setting!("max_size", Size<1024>, settings.max_size, "The most that is read from an address"),
    setting!(
        "ca",
        Maybe<FilePath>,
        settings.tls.ca,
        "With an https:// address: the file with the authorities that its certificate is checked against, instead of the system's",
        "\"/etc/semel/ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        settings.tls.certificate,
        "With an https:// address: the file with the certificate that it is shown",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        settings.tls.key,
        "With an https:// address: the file with the private key of that certificate",
        "\"/etc/semel/gateway.key\""
    ),
];

/// `[encryption]`, beside its keys.
pub(super) const ENCRYPTION: &[Setting<EncryptionTable>] = &[
    setting!(
        "current",
        Maybe<KeyId>,
        current,
        "The id of the key that stored responses and requests are encrypted under; without it, nothing is",
        "\"2026-11\""
    ),
    setting!(
        "plaintext",
        Choice<Plaintext>,
        plaintext,
        "What becomes of stored data that is not encrypted: `refuse` it once `semel keys rotate` has encrypted everything"
    ),
];

/// `[[encryption.key]]`: exactly one of `file`, `env` and `command`.
pub(super) const ENCRYPTION_KEY: &[Setting<KeyTable>] = &[
    setting!("id", Maybe<KeyId>, id, "What records call the key", "\"2026-11\""),
    setting!(
        "file",
        Maybe<FilePath>,
        secret.file,
        "The file that holds it: 32 bytes, as hexadecimal digits or base64",
        "\"/etc/semel/2026-11.key\""
    ),
    setting!(
        "env",
        Maybe<VariableName>,
        secret.env,
        "Or the variable that holds it",
        "\"STORE_KEY_2026_11\""
    ),
    setting!(
        "command",
        Maybe<CommandLine>,
        secret.command,
        "Or the program that prints it, with its arguments; run once at the start, without a shell",
        "[\"pass\", \"show\", \"semel/2026-11\"]"
    ),
];

/// `[limits]`.
pub(super) const LIMITS: &[Setting<Config>] = &[
    setting!(
        "tenant_new_keys",
        OrOff<PerTime>,
        limits.tenant.new_keys,
        "How many commands with new keys each tenant may begin in a time"
    ),
    setting!(
        "tenant_lookups",
        OrOff<PerTime>,
        limits.tenant.lookups,
        "How many commands and questions each tenant may send in a time"
    ),
    setting!(
        "tenant_active_keys",
        OrOff<Keys>,
        limits.tenant.active_keys,
        "How many keys each tenant may have at a time"
    ),
    setting!(
        "tenant_stored_bytes",
        OrOff<Volume>,
        limits.tenant.stored_bytes,
        "How much may be stored for each tenant at a time"
    ),
    setting!(
        "caller_new_keys",
        OrOff<PerTime>,
        limits.caller.new_keys,
        "How many commands with new keys each caller may begin in a time"
    ),
    setting!(
        "caller_lookups",
        OrOff<PerTime>,
        limits.caller.lookups,
        "How many commands and questions each caller may send in a time"
    ),
    setting!(
        "caller_active_keys",
        OrOff<Keys>,
        limits.caller.active_keys,
        "How many keys each caller may have at a time"
    ),
    setting!(
        "caller_stored_bytes",
        OrOff<Volume>,
        limits.caller.stored_bytes,
        "How much may be stored for each caller at a time"
    ),
];

/// `[[limit]]`.
pub(super) const LIMIT: &[Setting<LimitTable>] = &[
    setting!("tenant", Maybe<Name>, tenant, "Whose limit it is", "\"acme\""),
    setting!(
        "caller",
        Maybe<Name>,
        caller,
        "Of which caller; without it, of all its callers together",
        "\"batch\""
    ),
    setting!(
        "new_keys",
        Maybe<PerTime>,
        allowance.new_keys,
        "As in [limits], for this one alone",
        "\"2000/s\""
    ),
    setting!(
        "lookups",
        Maybe<PerTime>,
        allowance.lookups,
        "As in [limits], for this one alone",
        "\"20000/s\""
    ),
    setting!(
        "active_keys",
        Maybe<Keys>,
        allowance.active_keys,
        "As in [limits], for this one alone",
        "10000000"
    ),
    setting!(
        "stored_bytes",
        Maybe<Volume>,
        allowance.stored_bytes,
        "As in [limits], for this one alone",
        "\"100GiB\""
    ),
];

/// `[tls]`, and `[admin_tls]`.
pub(super) const TLS: &[Setting<TlsTable>] = &[
    setting!(
        "certificate",
        Maybe<FilePath>,
        certificate,
        "The file with the certificate, in PEM, and those between it and its authority; without it, no TLS is spoken",
        "\"/etc/semel/server.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        key,
        "The file with its private key, in PEM, for nobody else to read",
        "\"/etc/semel/server.key\""
    ),
    setting!(
        "client_ca",
        Maybe<FilePath>,
        client_ca,
        "The file with the authorities whose certificates clients must show",
        "\"/etc/semel/clients.crt\""
    ),
    setting!(
        "client_crl",
        Maybe<FilePath>,
        client_crl,
        "The file with their lists of revoked certificates, in PEM",
        "\"/etc/semel/clients.crl\""
    ),
];

/// `[upstream_tls]`.
pub(super) const UPSTREAM_TLS: &[Setting<UpstreamTlsTable>] = &[
    setting!(
        "ca",
        Maybe<FilePath>,
        ca,
        "The file with the authorities that the upstream's certificate is checked against, instead of the system's",
        "\"/etc/semel/upstream-ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        certificate,
        "The file with the certificate that the upstream is shown",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!("key", Maybe<FilePath>, key, "The file with its private key", "\"/etc/semel/gateway.key\""),
];

/// `[[admin.token]]`: exactly one of `file`, `env` and `command`.
pub(super) const ADMIN_TOKEN: &[Setting<TokenTable>] = &[
    setting!("name", Maybe<TokenName>, name, "Who has the token, as logs and notes say it", "\"alice\""),
    setting!(
        "role",
        Maybe<Choice<Role>>,
        role,
        "Look, but at no body; or look at everything, and act",
        "\"viewer\""
    ),
    setting!(
        "file",
        Maybe<FilePath>,
        secret.file,
        "The file that holds the token: at least 32 characters",
        "\"/etc/semel/alice.token\""
    ),
    setting!(
        "env",
        Maybe<VariableName>,
        secret.env,
        "Or the variable that holds it",
        "\"ADMIN_TOKEN_ALICE\""
    ),
    setting!(
        "command",
        Maybe<CommandLine>,
        secret.command,
        "Or the program that prints it, with its arguments; run once at the start, without a shell",
        "[\"pass\", \"show\", \"semel/alice\"]"
    ),
];

/// Names of tables, in the order they are shown.
pub(super) const TABLES: [&str; 17] = [
    "admin",
    "server",
    "cors",
    "identity",
    "defaults",
    "operation",
    "pass",
    "webhook",
    "limits",
    "limit",
    "reconcile",
    "maintenance",
    "ledger",
    "encryption",
    "tls",
    "admin_tls",
    "upstream_tls",
];

/// Names of tables and settings that are promised and not built yet.
pub(super) const RESERVED: [&str; 1] = ["outbox"];

/// Every setting, in the order they are shown.
pub fn settings() -> Vec<SettingInfo> {
    fn infos<T>(table: &'static str, settings: &[Setting<T>], default: &T) -> Vec<SettingInfo> {
        settings.iter().map(|setting| SettingInfo::new(table, setting, default)).collect()
    }
    let config = Config::default();
    [
        infos("", GENERAL, &config),
        infos("admin.token", ADMIN_TOKEN, &TokenTable::default()),
        infos("server", SERVER, &config),
        infos("cors", CORS, &config),
        infos("identity", IDENTITY, &IdentityTable::default()),
        infos("defaults", DEFAULTS, &config.defaults),
        infos("defaults", AUTHORIZATION, &config.authorization),
        infos("operation", OPERATION, &OperationTable::default()),
        infos("operation.reconcile", LOOK_UP, &LookUpTable::default()),
        infos("pass", PASS, &PassTable::default()),
        infos("webhook", WEBHOOK, &WebhookTable::default()),
        infos("limits", LIMITS, &config),
        infos("limit", LIMIT, &LimitTable::default()),
        infos("reconcile", RECONCILE, &config),
        infos("maintenance", MAINTENANCE, &config),
        infos("ledger", LEDGER, &LedgerTable::default()),
        infos("encryption", ENCRYPTION, &EncryptionTable::default()),
        infos("encryption.key", ENCRYPTION_KEY, &KeyTable::default()),
        infos("tls", TLS, &TlsTable::default()),
        infos("admin_tls", TLS, &TlsTable::default()),
        infos("upstream_tls", UPSTREAM_TLS, &UpstreamTlsTable::default()),
    ]
    .concat()
}

impl Words for Plaintext {
    const WORDS: &'static [(&'static str, Self)] =
        &[("accept", Plaintext::Accept), ("refuse", Plaintext::Refuse)];
}

impl Words for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
}

impl Words for Format {
    const WORDS: &'static [(&'static str, Self)] =
        &[("csv", Format::Csv), ("ndjson", Format::Ndjson), ("json", Format::Json)];
}

impl Words for Mode {
    const WORDS: &'static [(&'static str, Self)] = &[("sync", Mode::Sync), ("async", Mode::Async)];
}

impl Words for KeyRequirement {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("required", KeyRequirement::Required),
        ("optional", KeyRequirement::Optional),
        ("ignored", KeyRequirement::Ignored),
    ];
}

impl Words for KeySyntax {
    const WORDS: &'static [(&'static str, Self)] =
        &[("lenient", KeySyntax::Lenient), ("strict", KeySyntax::Strict)];
}

impl Words for Profile {
    const WORDS: &'static [(&'static str, Self)] = &[("ietf", Profile::Ietf), ("stripe", Profile::Stripe)];
}

impl Words for InProgress {
    const WORDS: &'static [(&'static str, Self)] =
        &[("conflict", InProgress::Conflict), ("accepted", InProgress::Accepted)];
}

impl Words for OnLeaseExpired {
    const WORDS: &'static [(&'static str, Self)] =
        &[("unknown", OnLeaseExpired::Unknown), ("rerun", OnLeaseExpired::Rerun)];
    const UNLISTED: &'static [(&'static str, Self)] = &[("resume", OnLeaseExpired::Resume)];
}

impl Words for OnServerError {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("unknown", OnServerError::Unknown),
        ("replay", OnServerError::Replay),
        ("retry", OnServerError::Retry),
    ];
}

impl Words for OnExpired {
    const WORDS: &'static [(&'static str, Self)] =
        &[("forget", OnExpired::Forget), ("refuse", OnExpired::Refuse)];
}

impl Words for Spelling {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", Spelling::Refuse), ("same", Spelling::Same), ("other", Spelling::Other)];
}

impl Words for PathException {
    const WORDS: &'static [(&'static str, Self)] = &[
        (PathException::EncodedDot.as_str(), PathException::EncodedDot),
        (PathException::EncodedSlash.as_str(), PathException::EncodedSlash),
        (PathException::EncodedBackslash.as_str(), PathException::EncodedBackslash),
        (PathException::EncodedPercent.as_str(), PathException::EncodedPercent),
        (PathException::Semicolon.as_str(), PathException::Semicolon),
        (PathException::EmptySegment.as_str(), PathException::EmptySegment),
    ];
}

impl Words for StoreResponse {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("full", StoreResponse::Full),
        ("headers", StoreResponse::Headers),
        ("reference", StoreResponse::Reference),
    ];
}
