//! The schema of a SQL store: its version, the oldest version that reads it, and what a program may do with it.
//!
//! Both SQL stores have one version number: a script that one of them does not need is empty there. Invariant: no script runs that
//! a program which may still open the store could not live with, and no format is written that it cannot read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use semel_core::{Formats, StoreError};

/// The script that makes one schema version from the version before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    pub(crate) script: &'static str,
    /// Oldest version whose programs can read and write a store after this script.
    pub(crate) readable_from: u32,
}

/// Schema of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSchema {
    /// Version of the tables; 0 if there are none.
    pub version: u32,
    /// Oldest version whose programs can read and write the store. Only formats that they know are written to it.
    pub readable_from: u32,
}

/// Relation of a store's schema to the version that a program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaAge {
    /// The schema of this build.
    Current,
    /// An older schema, or none.
    Older,
    /// A newer schema that this build can read and write.
    Ahead,
    /// A newer schema that this build cannot read.
    Unreadable,
}

impl StoreSchema {
    /// Schema of a store without tables.
    pub(crate) const NONE: StoreSchema = StoreSchema { version: 0, readable_from: 0 };

    /// Returns the relation of this schema to the version that a program knows.
    pub(crate) fn age(self, known: u32) -> SchemaAge {
        match self.version.cmp(&known) {
            std::cmp::Ordering::Less => SchemaAge::Older,
            std::cmp::Ordering::Equal => SchemaAge::Current,
            std::cmp::Ordering::Greater if self.readable_from <= known => SchemaAge::Ahead,
            std::cmp::Ordering::Greater => SchemaAge::Unreadable,
        }
    }

    /// Returns true if no program of an older version reads the store: newest formats are written to it.
    pub fn is_finished(self) -> bool {
        self.version <= self.readable_from
    }

    /// Returns the schema after the migrations that this store still needs.
    ///
    /// # Errors
    /// The version from which on the result would be readable, if programs that may open the store now could not read it.
    pub(crate) fn after(self, migrations: &[Migration]) -> Result<StoreSchema, u32> {
        let version = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
        if self.version == 0 {
            return Ok(StoreSchema { version, readable_from: version });
        }
        let needed = migrations.iter().skip(self.version as usize).map(|migration| migration.readable_from);
        match needed.max() {
            Some(needed) if needed > self.readable_from => Err(needed),
            Some(_) | None => Ok(StoreSchema { version, ..self }),
        }
    }
}

/// Schema of an open store, as this process last read it.
#[derive(Clone, Debug)]
pub(crate) struct KnownSchema(Arc<LastReadSchema>);

#[derive(Debug)]
struct LastReadSchema {
    /// Version that this program knows.
    known: u32,
    readable_from: AtomicU32,
    told: AtomicBool,
}

impl KnownSchema {
    /// Returns the schema of a store that was found like this, and tells its operator of an upgrade that is under way.
    pub(crate) fn new(found: StoreSchema, known: u32) -> KnownSchema {
        let (version, readable_from) = (found.version, found.readable_from);
        if found.age(known) == SchemaAge::Ahead {
            tracing::warn!(
                version,
                readable_from,
                own = known,
                "the store's schema is of a newer version of Semel, and this one can still read it: it works in the older \
                 formats, until `semel migrate --finish`"
            );
        } else if !found.is_finished() {
            tracing::info!(
                version,
                readable_from,
                "older versions of Semel can still read the store, so that only their formats are written: run \
                 `semel migrate --finish` when every gateway runs this version"
            );
        }
        let last = LastReadSchema {
            known,
            readable_from: AtomicU32::new(readable_from),
            told: AtomicBool::new(false),
        };
        let schema = KnownSchema(Arc::new(last));
        schema.learn(found);
        schema
    }

    /// Remembers the schema as it was read again.
    pub(crate) fn learn(&self, found: StoreSchema) {
        let before = self.0.readable_from.swap(found.readable_from, Ordering::SeqCst);
        if self.formats() > Formats::CURRENT {
            semel_faults::write_next_formats();
        }
        if before != found.readable_from {
            tracing::info!(
                before,
                now = found.readable_from,
                "the store is readable from another version on: its upgrade was finished"
            );
        }
        if self.check().is_err() && !self.0.told.swap(true, Ordering::SeqCst) {
            tracing::error!(
                version = found.version,
                readable_from = found.readable_from,
                own = self.0.known,
                "an upgrade of the store was finished while this older version runs: it starts no commands any more. Stop it"
            );
        }
    }

    /// Returns the formats that may be written: at most those of this program.
    pub(crate) fn formats(&self) -> Formats {
        Formats::of_version(self.0.readable_from.load(Ordering::SeqCst).min(self.0.known))
    }

    /// Checks that this program may still start commands.
    ///
    /// # Errors
    /// An upgrade was finished that this program is not a part of.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let readable_from = self.0.readable_from.load(Ordering::SeqCst);
        if readable_from <= self.0.known {
            return Ok(());
        }
        Err(StoreError::Damaged(format!(
            "the store is readable from schema version {readable_from} on, since its upgrade was finished, and this version of \
             Semel knows versions up to {}",
            self.0.known
        )))
    }
}

/// Returns the advice to somebody who wants to finish the upgrade of a store with this schema version, by a program that knows
/// another one.
pub(crate) fn finish_advice(found: u32, known: u32) -> &'static str {
    if found < known {
        "run `semel migrate`, let every gateway run this version, and then finish the upgrade"
    } else {
        "only the version of Semel that migrated it finishes the upgrade"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(version: u32, readable_from: u32) -> StoreSchema {
        StoreSchema { version, readable_from }
    }

    fn migrations(readable_from: &[u32]) -> Vec<Migration> {
        readable_from.iter().map(|&readable_from| Migration { script: "", readable_from }).collect()
    }

    #[test]
    fn a_program_reads_a_newer_store_only_from_the_version_on_that_the_store_names() {
        assert_eq!(schema(3, 3).age(3), SchemaAge::Current);
        assert_eq!(schema(3, 2).age(3), SchemaAge::Current);
        assert_eq!(schema(2, 1).age(3), SchemaAge::Older);
        assert_eq!(StoreSchema::NONE.age(3), SchemaAge::Older);
        assert_eq!(schema(4, 3).age(3), SchemaAge::Ahead);
        assert_eq!(schema(9, 1).age(3), SchemaAge::Ahead);
        assert_eq!(schema(4, 4).age(3), SchemaAge::Unreadable);
    }

    #[test]
    fn a_migration_keeps_the_version_from_which_on_the_store_is_readable() {
        assert_eq!(schema(1, 1).after(&migrations(&[1, 1])), Ok(schema(2, 1)));
        assert_eq!(schema(1, 1).after(&migrations(&[1, 1, 1])), Ok(schema(3, 1)));
        assert_eq!(schema(2, 2).after(&migrations(&[1, 1, 2])), Ok(schema(3, 2)));
        assert_eq!(schema(2, 1).after(&migrations(&[1, 1])), Ok(schema(2, 1)), "there is nothing to do");
    }

    #[test]
    fn a_new_store_is_readable_by_no_older_program() {
        assert_eq!(StoreSchema::NONE.after(&migrations(&[1, 1, 2])), Ok(schema(3, 3)));
        assert!(schema(3, 3).is_finished() && !schema(3, 2).is_finished());
    }

    #[test]
    fn a_script_that_older_programs_cannot_live_with_waits_until_the_upgrade_before_it_is_finished() {
        assert_eq!(schema(2, 1).after(&migrations(&[1, 1, 2])), Err(2));
        assert_eq!(schema(1, 1).after(&migrations(&[1, 1, 2])), Err(2), "a version is left out");
        assert_eq!(schema(2, 2).after(&migrations(&[1, 1, 2])), Ok(schema(3, 2)));
    }

    #[test]
    fn formats_follow_the_oldest_program_that_may_read_them() {
        let known = KnownSchema::new(schema(2, 1), 2);
        assert_eq!(known.formats(), Formats::of_version(1));
        known.learn(schema(2, 2));
        assert_eq!(known.formats(), Formats::of_version(2));
        assert!(known.check().is_ok());
    }

    #[test]
    fn a_program_that_an_upgrade_left_behind_starts_no_commands_and_writes_its_own_formats() {
        let known = KnownSchema::new(schema(2, 1), 1);
        assert!(known.check().is_ok());
        known.learn(schema(2, 2));
        assert!(matches!(known.check(), Err(StoreError::Damaged(_))));
        assert_eq!(known.formats(), Formats::of_version(1));
    }
}
