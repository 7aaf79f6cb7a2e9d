//! Configurations to check: the policies that Semel ships, each with the faults that it is made for.

use semel_core::policy::OnLeaseExpired;

use crate::configuration::{Configuration, Faults, Mode, Request};

const SAME: Request = Request { key: 0, payload: 1 };
const OTHER: Request = Request { key: 0, payload: 2 };
const OTHER_KEY: Request = Request { key: 1, payload: 1 };

const CRASH: Faults = Faults { crashes: 1, losses: 0, leaps: 0, silences: 0 };
const QUIET: Faults = Faults { crashes: 0, ..CRASH };

/// Defaults: a request runs its command, an expired lease is an unknown outcome, and the provider does not
/// deduplicate.
pub const DEFAULTS: Configuration = Configuration {
    name: "defaults",
    about: "three requests of one key; a node dies",
    requests: &[SAME, SAME, SAME],
    nodes: 2,
    mode: Mode::Sync,
    on_lease_expired: OnLeaseExpired::Unknown,
    deduplicates: false,
    declines: false,
    reference: false,
    expires: false,
    tombstones: false,
    slow_answers: false,
    renewals: 0,
    starts: 0,
    operator: 0,
    operator_errs: false,
    sleepy_reconciler: false,
    restores: 0,
    looks_up_first: false,
    lifts: false,
    faults: CRASH,
};

/// Every kind of fault happens.
pub const TROUBLE: Configuration = Configuration {
    name: "trouble",
    about: "two requests; a node dies, a statement is lost or late, the store's clock leaps",
    requests: &[SAME, SAME],
    faults: Faults { crashes: 1, losses: 1, leaps: 1, silences: 0 },
    ..DEFAULTS
};

/// Statements and answers are lost.
pub const LOSSES: Configuration = Configuration {
    name: "losses",
    about: "two requests, one after the other or at once; two statements or answers are lost or late",
    requests: &[SAME, SAME],
    faults: Faults { losses: 2, ..QUIET },
    ..DEFAULTS
};

/// The store answers slowly, and records expire.
pub const SLOW_ANSWERS: Configuration = Configuration {
    name: "slow answers",
    about: "two requests; the store's answers take time, executors renew their leases; records expire",
    requests: &[SAME, SAME],
    expires: true,
    slow_answers: true,
    renewals: 1,
    ..DEFAULTS
};

/// The provider deduplicates on the operation id, and may decline.
pub const DEDUPLICATES: Configuration = Configuration {
    name: "deduplicates",
    about: "three requests; the provider deduplicates on the operation id",
    deduplicates: true,
    faults: QUIET,
    ..DEFAULTS
};

/// One request has another payload.
pub const OTHER_PAYLOAD: Configuration = Configuration {
    name: "other payload",
    about: "one of three requests has another payload; the store's answers take time",
    requests: &[SAME, SAME, OTHER],
    slow_answers: true,
    faults: QUIET,
    ..DEFAULTS
};

/// An operator acts, and lookups get no answer.
pub const OPERATOR: Configuration = Configuration {
    name: "operator",
    about: "two requests; an operator resolves, purges or frees; a look-up is in vain; tombstones are kept",
    requests: &[SAME, SAME],
    expires: true,
    tombstones: true,
    operator: 1,
    faults: Faults { silences: 1, ..QUIET },
    ..DEFAULTS
};

/// An operator errs, and the provider's event comes later.
pub const LATE_EVIDENCE: Configuration = Configuration {
    name: "late evidence",
    about: "two requests; an operator may say \"not executed\" of what took place; the provider's events come at any time",
    requests: &[SAME, SAME],
    operator: 1,
    operator_errs: true,
    faults: QUIET,
    ..DEFAULTS
};

/// The operation is declared safe to repeat, since the provider deduplicates.
pub const RERUN: Configuration = Configuration {
    name: "rerun",
    about: "an ended lease frees the key, since the provider deduplicates; a node dies",
    on_lease_expired: OnLeaseExpired::Rerun,
    deduplicates: true,
    ..DEFAULTS
};

/// Workers run commands.
pub const ASYNC: Configuration = Configuration {
    name: "async",
    about: "workers run what two requests have left to them; a node dies, a statement is lost or late",
    requests: &[SAME, SAME],
    mode: Mode::Async,
    starts: 2,
    faults: Faults { losses: 1, ..CRASH },
    ..DEFAULTS
};

/// Workers run commands, and rerun them after lease expiry.
pub const ASYNC_RERUN: Configuration = Configuration {
    name: "async rerun",
    about: "workers start a command again when a lease has ended, since the provider deduplicates",
    on_lease_expired: OnLeaseExpired::Rerun,
    deduplicates: true,
    faults: CRASH,
    ..ASYNC
};

/// Commands in phases, which workers resume.
pub const PHASES: Configuration = Configuration {
    name: "phases",
    about: "workers go on where an executor left off, but not in the middle of a call",
    mode: Mode::Phased,
    on_lease_expired: OnLeaseExpired::Resume,
    starts: 1,
    faults: CRASH,
    ..ASYNC
};

/// Two keys with one business reference.
pub const REFERENCE: Configuration = Configuration {
    name: "reference",
    about: "two keys with one business reference; the provider may decline, and an operator acts",
    requests: &[SAME, OTHER_KEY],
    reference: true,
    declines: true,
    operator: 1,
    slow_answers: true,
    faults: QUIET,
    ..DEFAULTS
};

/// Two keys with one business reference, one of them sent twice. The provider deduplicates each key by itself.
pub const REFERENCE_AND_DEDUPLICATION: Configuration = Configuration {
    name: "reference, deduplicates",
    about: "two keys with one business reference, one sent twice; the provider deduplicates",
    requests: &[SAME, SAME, OTHER_KEY],
    nodes: 1,
    reference: true,
    ..DEDUPLICATES
};

/// Two keys with one business reference, one of them sent twice. An expired lease frees the key.
pub const REFERENCE_AND_RERUN: Configuration = Configuration {
    name: "reference, rerun",
    about: "two keys with one business reference, one sent twice; an ended lease frees the key; a statement is lost, an operator acts",
    on_lease_expired: OnLeaseExpired::Rerun,
    operator: 1,
    faults: Faults { losses: 1, ..QUIET },
    ..REFERENCE_AND_DEDUPLICATION
};

/// Every shipped configuration.
pub const ALL: [&Configuration; 26] = [
    &DEFAULTS,
    &TROUBLE,
    &LOSSES,
    &SLOW_ANSWERS,
    &DEDUPLICATES,
    &OTHER_PAYLOAD,
    &OPERATOR,
    &LATE_EVIDENCE,
    &RERUN,
    &ASYNC,
    &ASYNC_RERUN,
    &PHASES,
    &REFERENCE,
    &REFERENCE_AND_DEDUPLICATION,
    &REFERENCE_AND_RERUN,
    &SLEEPY_RECONCILER,
    &DEDUPLICATES_AND_AN_OPERATOR,
    &RESTORED,
    &RESTORED_AND_AN_OPERATOR,
    &RESTORED_LOOKED_UP,
    &RESTORED_AND_A_LOSS,
    &RESTORED_RERUN,
    &RESTORED_REFERENCE,
    &RESTORED_ASYNC,
    &RESTORED_LIFTED,
    &RESTORED_LIFTED_RERUN,
];

/// Two requests and no fault except slowness: most variants fail here already.
pub const TWO: Configuration =
    Configuration { name: "two", about: "two requests", requests: &[SAME, SAME], faults: QUIET, ..DEFAULTS };

/// Two requests, and a node dies.
pub const TWO_AND_A_CRASH: Configuration =
    Configuration { name: "two, a crash", about: "two requests, a crash", faults: CRASH, ..TWO };

/// Two requests, and a statement or an answer is lost.
pub const TWO_AND_A_LOSS: Configuration = Configuration {
    name: "two, a loss",
    about: "two requests; a statement is lost or late",
    faults: Faults { losses: 1, ..QUIET },
    ..TWO
};

/// Three requests to one node.
pub const THREE_TO_ONE: Configuration =
    Configuration { name: "three to one", about: "three requests to one node", nodes: 1, ..THREE };

/// Three requests to one node, and a reconciler that pauses for any time between its lookup and its verdict.
pub const SLEEPY_RECONCILER: Configuration = Configuration {
    name: "sleepy reconciler",
    about: "three requests to one node; the reconciler may sleep between its look and its word",
    sleepy_reconciler: true,
    ..THREE_TO_ONE
};

/// Three requests to one node, and a statement or an answer is lost.
pub const THREE_AND_A_LOSS: Configuration = Configuration {
    name: "three, a loss",
    about: "three requests to one node; a statement is lost or late",
    faults: Faults { losses: 1, ..QUIET },
    ..THREE_TO_ONE
};

/// Three requests to one node, and an operator acts.
pub const THREE_AND_AN_OPERATOR: Configuration = Configuration {
    name: "three, an operator",
    about: "three requests to one node; an operator resolves, purges or frees",
    operator: 1,
    ..THREE_TO_ONE
};

/// Two requests, and the store's clock leaps.
pub const TWO_AND_A_LEAP: Configuration = Configuration {
    name: "two, a leap",
    about: "two requests; the store's clock leaps",
    faults: Faults { leaps: 1, ..QUIET },
    ..TWO
};

/// Two requests, and the store's clock leaps twice.
pub const TWO_AND_TWO_LEAPS: Configuration = Configuration {
    name: "two, two leaps",
    about: "two requests; the store's clock leaps twice",
    faults: Faults { leaps: 2, ..QUIET },
    ..TWO
};

/// Two requests, an operator, and a provider that deduplicates.
pub const DEDUPLICATES_AND_AN_OPERATOR: Configuration = Configuration {
    name: "deduplicates, an operator",
    about: "two requests; the provider deduplicates, and an operator acts",
    deduplicates: true,
    operator: 1,
    ..TWO
};

/// One request, which two workers could run.
pub const ONE_FOR_WORKERS: Configuration = Configuration {
    name: "one, for workers",
    about: "one request, which two workers could run",
    requests: &[SAME],
    faults: QUIET,
    ..ASYNC
};

/// Three requests and no fault except slowness.
pub const THREE: Configuration =
    Configuration { name: "three", about: "three requests", faults: QUIET, ..DEFAULTS };

/// Configurations of `--quick`: smaller, yet they reach every situation of `SIGHTS`.
pub const QUICK: [&Configuration; 12] = [
    &TWO_AND_A_CRASH,
    &TWO_AND_A_LOSS,
    &TWO_AND_A_LEAP,
    &SMALL_SLOW_ANSWERS,
    &SMALL_OTHER_PAYLOAD,
    &SMALL_REFERENCE,
    &REFERENCE_AND_DEDUPLICATION,
    &OPERATOR,
    &ASYNC_RERUN,
    &DEDUPLICATES_AND_AN_OPERATOR,
    &TWO_RESTORED,
    &RESTORED_LIFTED,
];

const SMALL_SLOW_ANSWERS: Configuration =
    Configuration { name: "slow answers, small", renewals: 0, faults: QUIET, ..SLOW_ANSWERS };

const SMALL_OTHER_PAYLOAD: Configuration =
    Configuration { name: "other payload, small", requests: &[SAME, OTHER], ..OTHER_PAYLOAD };

const SMALL_REFERENCE: Configuration = Configuration { name: "reference, small", operator: 0, ..REFERENCE };

/// The store is restored and fenced.
pub const RESTORED: Configuration = Configuration {
    name: "restored",
    about: "three requests to one node; the store is restored from a backup and fenced",
    restores: 1,
    ..THREE_TO_ONE
};

/// The store is restored and fenced, and an operator gives verdicts.
pub const RESTORED_AND_AN_OPERATOR: Configuration = Configuration {
    name: "restored, an operator",
    about: "two requests; the store is restored and fenced; an operator resolves or frees",
    restores: 1,
    operator: 1,
    ..TWO
};

/// The store is restored, and lost commands are looked up before they run.
pub const RESTORED_LOOKED_UP: Configuration = Configuration {
    name: "restored, looked up",
    about: "three requests to one node; the store is restored and fenced, and what may be lost is looked up first",
    looks_up_first: true,
    ..RESTORED
};

/// The store is restored, and statements are late.
pub const RESTORED_AND_A_LOSS: Configuration = Configuration {
    name: "restored, a loss",
    about: "two requests to one node; the store is restored and fenced; a statement is lost or late",
    nodes: 1,
    restores: 1,
    looks_up_first: true,
    ..TWO_AND_A_LOSS
};

/// The store is restored, an expired lease frees the key, and the provider deduplicates on the operation id.
pub const RESTORED_RERUN: Configuration = Configuration {
    name: "restored, rerun",
    about: "the same, where an ended lease frees the key, since the provider deduplicates on the operation id",
    on_lease_expired: OnLeaseExpired::Rerun,
    deduplicates: true,
    ..RESTORED_LOOKED_UP
};

/// The store is restored, and an operator acts on two keys with one business reference.
pub const RESTORED_REFERENCE: Configuration = Configuration {
    name: "restored, reference",
    about: "two keys with one business reference; the store is restored and fenced; an operator acts",
    requests: &[SAME, OTHER_KEY],
    reference: true,
    operator: 1,
    ..RESTORED_LOOKED_UP
};

/// Two keys with one business reference, one of them sent twice, in a restored store.
pub const RESTORED_REFERENCE_TWICE: Configuration = Configuration {
    name: "restored, reference twice",
    about: "two keys with one business reference, one sent twice; the store is restored and fenced",
    requests: &[SAME, OTHER_KEY, OTHER_KEY],
    operator: 0,
    ..RESTORED_REFERENCE
};

/// The store is restored under workers.
pub const RESTORED_ASYNC: Configuration = Configuration {
    name: "restored, async",
    about: "two requests, for workers; the store is restored and fenced, and what may be lost is looked up first",
    restores: 1,
    looks_up_first: true,
    faults: QUIET,
    ..ASYNC
};

/// The fence of a restored store is lifted, and nobody sends the command again.
pub const RESTORED_LIFTED: Configuration = Configuration {
    name: "restored, lifted",
    about: "one request, for workers; the store is restored and fenced, and the fence is lifted",
    restores: 1,
    lifts: true,
    ..ONE_FOR_WORKERS
};

/// The fence is lifted, and workers start the command again after lease expiry.
pub const RESTORED_LIFTED_RERUN: Configuration = Configuration {
    name: "restored, lifted, rerun",
    about: "the same, where a worker starts the command again when a lease has ended, since the provider deduplicates",
    on_lease_expired: OnLeaseExpired::Rerun,
    deduplicates: true,
    ..RESTORED_LIFTED
};

/// Two requests, and the store is restored.
pub const TWO_RESTORED: Configuration = Configuration {
    name: "two, restored",
    about: "two requests to one node; the store is restored from a backup and fenced",
    nodes: 1,
    restores: 1,
    looks_up_first: true,
    ..TWO
};
