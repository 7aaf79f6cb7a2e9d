//! Wrong protocols for a store that is restored from a backup.

use super::{Case, Variant, case};
use crate::promises::Promise;
use crate::shipped;

/// Cases of variants of a restored store, which must be refuted.
pub const ALL: [Case; 12] = [
    case(
        Variant::RestoredWithoutFence,
        "restored-without-fence",
        "a store that was restored takes missing keys for new ones",
        Promise::OneEffect,
    )
    .on(&shipped::TWO_RESTORED),
    case(
        Variant::FailuresUnfenced,
        "failures-unfenced",
        "the fence does not concern a key that was free for a retry when the store was backed up",
        Promise::OneEffect,
    )
    .on(&shipped::RESTORED),
    case(
        Variant::DoubtReleased,
        "doubt-released",
        "a request that finds its command in doubt gives its claim back, and frees the key",
        Promise::OneEffect,
    )
    .on(&shipped::RESTORED_LOOKED_UP),
    case(
        Variant::DoubtLookedUpEarly,
        "doubt-looked-up-early",
        "a look does not wait for calls of attempts that the store has lost",
        Promise::OneEffect,
    )
    .on(&shipped::RESTORED_LOOKED_UP),
    case(
        Variant::LookedUpById,
        "looked-up-by-id",
        "a look asks about the operation id of the new record, and the lost attempt had another one",
        Promise::OneEffect,
    )
    .on(&shipped::RESTORED_LOOKED_UP),
    case(
        Variant::DoubtDeduplicated,
        "doubt-deduplicated",
        "a look does not wait, since the provider deduplicates, and the lost attempt had another operation id",
        Promise::OneEffect,
    )
    .on(&shipped::RESTORED_RERUN),
    case(
        Variant::OldQuarantine,
        "old-quarantine",
        "a quarantine that was over before the backup does not begin anew",
        Promise::OneEffect,
    )
    .on(&shipped::RESTORED_LOOKED_UP),
    case(
        Variant::ReferenceUnfenced,
        "reference-unfenced",
        "evidence about one key frees a business reference that a lost key had",
        Promise::OneEffectPerReference,
    )
    .on(&shipped::RESTORED_REFERENCE_TWICE),
    case(
        Variant::DoubtedAtLift,
        "doubted-at-lift",
        "a statement that is late starts what waits for a worker, since it is in doubt only from the lift on",
        Promise::OneEffect,
    )
    .on(&shipped::RESTORED_LIFTED),
    case(
        Variant::LapsesUnfenced,
        "lapses-under-fence",
        "a lease that ends under the fence frees the key",
        Promise::LostIsNotRun,
    )
    .on(&shipped::RESTORED_RERUN),
    case(
        Variant::SweepsUnfenced,
        "sweeps-unfenced",
        "a sweep under the fence has a lapsed command wait for a worker, which starts it once the fence is lifted",
        Promise::LostIsNotRun,
    )
    .on(&shipped::RESTORED_LIFTED_RERUN),
    case(
        Variant::LiftedWithoutDoubt,
        "lifted-without-doubt",
        "a worker starts what waited at the backup once the fence is lifted, without evidence",
        Promise::OneEffect,
    )
    .on(&shipped::RESTORED_LIFTED),
];
