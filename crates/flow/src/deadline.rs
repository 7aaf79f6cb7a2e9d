//! The deadlines of everything that is done beside the work of a service.

use std::time::Duration;

/// Timeout of one exchange with the database, its COMMIT included. After it, the answer counts as lost.
pub(crate) const DATABASE_DEADLINE: Duration = Duration::from_secs(10);

/// Timeout for cancelled code to end.
pub(crate) const CANCEL_DEADLINE: Duration = Duration::from_secs(10);
