//! A transaction of a service's own that a command joins: its beginning, and the session it leaves behind.

use std::time::Duration;

/// Gives the transaction back the `lock_timeout` that its session had before it began.
///
/// Where the setting is missing, the transaction has been ended by somebody else.
macro_rules! reset_lock_timeout {
    () => {
        "set_config('lock_timeout', current_setting('semel.lock_timeout'), true)"
    };
}
pub(super) use reset_lock_timeout;

/// Whether the transaction is the one that [`begin`] began.
macro_rules! is_joined {
    () => {
        "current_setting('semel.lock_timeout', true) <> ''"
    };
}
pub(super) use is_joined;

/// Everything of a session that work may change and that outlives a transaction, as one text.
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

/// Begins a transaction of a service's own. Remembers the session as it is, and how it commits.
pub(super) const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('semel.session', ",
    session!(),
    ", false), set_config('semel.synchronous_commit', current_setting('synchronous_commit'), true), \
     set_config('semel.lock_timeout', current_setting('lock_timeout'), true)"
);

/// Whether the session is as it was when the last transaction began that [`begin`] or
/// [`begin_phase`](super::begin_phase) began. Gives its advisory locks back.
pub const IS_SESSION_UNCHANGED: &str = concat!(
    "SELECT coalesce(current_setting('semel.session', true) = ",
    session!(),
    ", true) FROM pg_advisory_unlock_all()"
);

/// Gives advisory locks back that outlive a transaction.
pub const GIVE_LOCKS_BACK: &str = "SELECT FROM pg_advisory_unlock_all()";

/// The transaction commits as its session did before it, whatever the work has set. Says whether it waits for standbys.
macro_rules! commit_as_begun {
    () => {
        "(set_config('synchronous_commit', current_setting('semel.synchronous_commit'), true) NOT IN ('off', 'local')
          AND current_setting('synchronous_standby_names') <> '')::int::bigint"
    };
}
pub(super) use commit_as_begun;

/// Begins a transaction that a command joins. Its claim waits for others no longer than `wait`; from then on it waits
/// for locks as its session does.
pub fn begin(wait: Duration) -> String {
    let wait = wait.as_millis().clamp(1, 86_400_000);
    format!("{BEGIN}, set_config('lock_timeout', '{wait}ms', true)")
}

/// From now on, the transaction waits for locks as its session does. A first claim that is made in one statement has
/// seen to that itself.
pub const RESET_LOCK_TIMEOUT: &str = concat!("SELECT ", reset_lock_timeout!());
