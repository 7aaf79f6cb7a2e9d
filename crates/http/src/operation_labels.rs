//! The labels of operations in metrics. Names of unmatched requests hold paths, so they share one label.

use std::collections::HashMap;
use std::sync::Arc;

use semel_core::OperationName;

/// The labels of operations by their names, former ones too.
#[derive(Clone, Debug)]
pub(crate) struct OperationLabels {
    rules: Vec<Arc<str>>,
    by_name: HashMap<String, Arc<str>>,
    unmatched: Arc<str>,
}

impl OperationLabels {
    /// Returns the label that is shared by operations without a rule, and no other.
    pub(crate) fn new() -> OperationLabels {
        OperationLabels {
            rules: Vec::new(),
            by_name: HashMap::new(),
            unmatched: Arc::from(OperationName::UNMATCHED),
        }
    }

    /// Returns labels for operations with these names.
    pub(crate) fn named(names: &[String]) -> OperationLabels {
        let mut labels = OperationLabels::new();
        names.iter().for_each(|name| labels.add(Arc::from(name.as_str()), std::iter::empty()));
        labels
    }

    /// Adds the label of a rule, which its former names share.
    pub(crate) fn add<'a>(&mut self, label: Arc<str>, former: impl Iterator<Item = &'a str>) {
        self.by_name.extend(former.map(|name| (name.to_owned(), label.clone())));
        self.by_name.insert(label.to_string(), label.clone());
        self.rules.push(label);
    }

    /// Returns the label of an operation.
    pub(crate) fn of(&self, operation: &str) -> Arc<str> {
        self.by_name.get(operation).unwrap_or(&self.unmatched).clone()
    }

    /// Returns the labels of the rules.
    pub(crate) fn rules(&self) -> &[Arc<str>] {
        &self.rules
    }

    /// Returns the label of operations without a rule.
    pub(crate) fn unmatched(&self) -> &Arc<str> {
        &self.unmatched
    }

    /// Returns every label.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rules.iter().chain([&self.unmatched])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_names_share_the_label_of_their_operation() {
        let mut labels = OperationLabels::new();
        labels.add(Arc::from("payments.create"), ["payments"].into_iter());
        let of = |name: &str| labels.of(name).to_string();
        assert_eq!(
            (of("payments.create"), of("payments")),
            ("payments.create".into(), "payments.create".into())
        );
        assert_eq!(of("POST /x/{id}"), "unmatched");
        assert_eq!(labels.all().map(|label| &**label).collect::<Vec<_>>(), ["payments.create", "unmatched"]);
    }
}
