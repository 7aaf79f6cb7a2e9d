//! The deadlines of everything that is done beside the work of a service.

use std::time::Duration;

/// How long one exchange with the database may take, its COMMIT included. After that, its answer counts as lost.
pub(crate) const DATABASE_DEADLINE: Duration = Duration::from_secs(10);

/// How long code that was cancelled may take to go away.
pub(crate) const CANCEL_DEADLINE: Duration = Duration::from_secs(10);
