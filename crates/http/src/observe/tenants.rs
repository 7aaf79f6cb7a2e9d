//! The tenants that have labels of their own in metrics.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use semel_core::Principal;

/// The maximum number of tenants that have labels of their own.
const MAX_LABELS: usize = 100;

/// The label that the other tenants share.
pub(super) const OTHER: &str = "other";

/// Tenants that have labels of their own; the rest share one.
#[derive(Default)]
pub(super) struct TenantLabels(RwLock<HashSet<String>>);

impl TenantLabels {
    /// Returns the label of a principal's tenant.
    pub(super) fn of(&self, principal: &Principal) -> String {
        let name = principal.tenant();
        {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if known.contains(name) {
                return name.to_owned();
            }
            if known.len() >= MAX_LABELS {
                return OTHER.to_owned();
            }
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_LABELS {
            known.insert(name.to_owned());
        }
        if known.contains(name) { name.to_owned() } else { OTHER.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;

    /// Time after which a thread counts as stuck.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn labels_are_capped() {
        let labels = TenantLabels::default();
        let label = |name: &str| labels.of(&Principal::new(name, "c").expect("it is a name"));
        for number in 0..MAX_LABELS {
            let name = format!("tenant-{number}");
            assert_eq!(label(&name), name);
        }
        assert_eq!(label("one too many"), OTHER);
        assert_eq!(label("tenant-7"), "tenant-7");
    }

    #[test]
    fn with_every_label_taken_tenants_do_not_wait_for_one_another() {
        let labels = Arc::new(TenantLabels::default());
        let caller = |name: &str| Principal::new(name, "c").expect("it is a name");
        for number in 0..MAX_LABELS {
            labels.of(&caller(&format!("tenant-{number}")));
        }
        // Another reader keeps out whoever wants to write.
        let _reading = labels.0.read().expect("nobody panics");
        let (asked, other) = (labels.clone(), caller("one too many"));
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(asked.of(&other)));
        assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok(OTHER));
    }
}
