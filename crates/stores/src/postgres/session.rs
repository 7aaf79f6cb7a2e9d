//! A transaction of a service's own that a command joins: its beginning, and the session it leaves behind.

use std::time::Duration;

/// Expression that gives the transaction back the `lock_timeout` that its session had before.
///
/// If the setting is missing, the transaction was ended by other code.
macro_rules! reset_lock_timeout {
    () => {
        "set_config('lock_timeout', current_setting('semel.lock_timeout'), true)"
    };
}
pub(super) use reset_lock_timeout;

/// Expression that is true in the transaction that [`begin`] began.
macro_rules! is_joined {
    () => {
        "current_setting('semel.lock_timeout', true) <> ''"
    };
}
pub(super) use is_joined;

/// Expression for all state of a session that work may change and that outlives a transaction, as one text.
macro_rules! session {
    () => {
        "concat_ws('|', session_user, pg_my_temp_schema(), (SELECT count(*) FROM pg_cursors WHERE is_holdable),
         (SELECT string_agg(channel, ',' ORDER BY channel) FROM pg_listening_channels() AS channel),
         current_setting('role'), current_setting('search_path'), current_setting('synchronous_commit'),
         current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only'),
         current_setting('default_transaction_deferrable'), current_setting('session_replication_role'),
         current_setting('row_security'), current_setting('lock_timeout'), current_setting('statement_timeout'),
         current_setting('idle_in_transaction_session_timeout'), current_setting('client_min_messages'),
         current_setting('client_encoding'), current_setting('standard_conforming_strings'),
         current_setting('TimeZone'), current_setting('DateStyle'), current_setting('IntervalStyle'),
         current_setting('bytea_output'), current_setting('extra_float_digits'),
         current_setting('default_tablespace'), current_setting('temp_tablespaces'))"
    };
}

/// Begins a transaction of a service's own. Remembers the session's state, and its way to commit.
pub(super) const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('semel.session', ",
    session!(),
    ", false), set_config('semel.synchronous_commit', current_setting('synchronous_commit'), true), \
     set_config('semel.lock_timeout', current_setting('lock_timeout'), true)"
);

/// Checks that the session is as it was when [`begin`] or [`begin_phase`](super::begin_phase) last began a
/// transaction. Releases its advisory locks.
pub const IS_SESSION_UNCHANGED: &str = concat!(
    "SELECT coalesce(current_setting('semel.session', true) = ",
    session!(),
    ", true) FROM pg_advisory_unlock_all()"
);

/// Releases advisory locks that outlive a transaction.
pub const GIVE_LOCKS_BACK: &str = "SELECT FROM pg_advisory_unlock_all()";

/// Expression that makes the transaction commit as its session did before, whatever the work has set. True if
/// the commit waits for standbys.
macro_rules! commit_as_begun {
    () => {
        "(set_config('synchronous_commit', current_setting('semel.synchronous_commit'), true) NOT IN ('off', 'local')
          AND current_setting('synchronous_standby_names') <> '')::int::bigint"
    };
}
pub(super) use commit_as_begun;

/// Begins a transaction that a command joins. Its claim waits for others no longer than `wait`; after that it
/// waits for locks as its session does.
pub fn begin(wait: Duration) -> String {
    let wait = wait.as_millis().clamp(1, 86_400_000);
    format!("{BEGIN}, set_config('lock_timeout', '{wait}ms', true)")
}

/// Makes the transaction wait for locks as its session does. A first claim in one statement includes this.
pub const RESET_LOCK_TIMEOUT: &str = concat!("SELECT ", reset_lock_timeout!());
