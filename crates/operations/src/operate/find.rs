//! Search for a command by what a person knows of it: its id, its business reference, or its key.
//!
//! Invariant: the key is only hashed. No result, error or log of this module has it.

use semel_core::{
    IdempotencyKey, OperationId, OperationName, Principal, Records, ReferenceEntry, Scope, StoreError,
};
use semel_settings::{Config, OperationConfig, nearest};
use serde_json::Value;

use super::records::{FoundCommand, absent, read};
use super::{beginning, operation_id, printable};

/// Largest number of commands that a search shows. More can have given the same reference back.
const MAX_MATCHES: usize = 100;

/// Terms of a search: the facts that a person knows of a command.
#[derive(Default)]
pub struct SearchTerms {
    /// Operation id of the command.
    pub operation_id: Option<String>,
    /// Tenant of the command.
    pub tenant: Option<String>,
    /// Caller of the command.
    pub caller: Option<String>,
    /// Operation of the command, by its present or a former name.
    pub operation: Option<String>,
    /// Business reference of the command.
    pub reference: Option<String>,
    /// Key of the command, as the client sends it.
    pub key: Option<Vec<u8>>,
}

/// Command that a person looks for.
pub enum WantedCommand {
    /// The command with this id.
    Id(OperationId),
    /// The commands that have or had this business reference.
    Reference {
        /// Tenant of the commands.
        tenant: String,
        /// Operation of the commands.
        operation: WantedOperation,
        /// Reference of the commands.
        reference: String,
    },
    /// The command of this caller with this key.
    Key {
        /// Sender of the command.
        principal: Principal,
        /// Operation of the command.
        operation: WantedOperation,
        /// Key of the command.
        key: IdempotencyKey,
    },
}

/// Operation that a person names.
pub struct WantedOperation {
    /// Names of the operation's records, the present one first.
    names: Vec<OperationName>,
    /// Hint at a typing mistake, if no rule has the name.
    advice: Option<String>,
    references: ReadsReferences,
}

/// Answer of the settings to the question if an operation reads business references.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadsReferences {
    /// Its rule names one.
    Yes,
    /// Its rule names none.
    No,
    /// It has no rule here. A service in Rust may have one.
    NoRule,
}

/// Commands that a search found.
pub struct FoundCommands {
    /// Commands, the holder of the reference first.
    pub commands: Vec<CommandMatch>,
    /// Number of commands that are not shown, all of which gave the reference back.
    pub omitted: usize,
}

/// Command that a search found.
pub struct CommandMatch {
    /// Id of the command.
    pub operation_id: OperationId,
    /// The command. Its record may be deleted: a reference outlives it.
    pub command: FoundCommand,
    /// True if the command holds the reference, false if it gave it back; `None` if it was not found by its reference.
    pub holds_reference: Option<bool>,
}

impl SearchTerms {
    /// Checks the terms against the settings: one of the three ways to find a command, and no more.
    ///
    /// # Errors
    /// Returns a description of the invalid part, without the key.
    pub fn read(self, config: &Config) -> Result<WantedCommand, String> {
        let SearchTerms { operation_id: id, tenant, caller, operation, reference, key } = self;
        match (id, tenant, operation, reference, caller, key) {
            (Some(id), None, None, None, None, None) => Ok(WantedCommand::Id(operation_id(&id)?)),
            (None, Some(tenant), Some(operation), Some(reference), None, None) => {
                let operation = WantedOperation::read(&operation, config)?;
                Ok(WantedCommand::Reference { tenant, operation, reference })
            }
            (None, Some(tenant), Some(operation), None, Some(caller), Some(key)) => {
                let operation = WantedOperation::read(&operation, config)?;
                let principal = Principal::new(&tenant, &caller).map_err(|error| error.to_string())?;
                let rules = config.policy_of(operation.name()).key_rules;
                let key = rules.parse([&*key]).map_err(|error| error.to_string())?;
                let key = key.ok_or_else(|| "the key is missing".to_owned())?;
                Ok(WantedCommand::Key { principal, operation, key })
            }
            _ => Err("a command is found by its operation id; or by tenant, operation and reference; or by \
                      tenant, caller, operation and key"
                .to_owned()),
        }
    }
}

impl WantedOperation {
    fn read(name: &str, config: &Config) -> Result<WantedOperation, String> {
        let asked = OperationName::new(name).map_err(|error| error.to_string())?;
        let is_asked = |operation: &&OperationConfig| operation.names().any(|own| *own == asked);
        if let Some(operation) = config.operations.iter().find(is_asked) {
            let references = if operation.business_reference.is_some() {
                ReadsReferences::Yes
            } else {
                ReadsReferences::No
            };
            let names = operation.names().cloned().collect();
            return Ok(WantedOperation { names, advice: None, references });
        }
        let known = config.operations.iter().map(|operation| operation.name.as_str());
        let advice = nearest(name, known)
            .map(|near| format!("No rule has the name {:?}: did you mean {near:?}?", beginning(name)));
        Ok(WantedOperation { names: vec![asked], advice, references: ReadsReferences::NoRule })
    }

    /// Returns the present name.
    fn name(&self) -> &OperationName {
        self.names.first().expect("there is always the name that was asked for")
    }

    /// Returns the names for a sentence.
    fn told(&self) -> String {
        let former: Vec<&str> = self.names.iter().skip(1).map(OperationName::as_str).collect();
        match former.is_empty() {
            true => printable(self.name().as_str()),
            false => printable(&format!("{} (formerly {})", self.name(), former.join(", "))),
        }
    }
}

impl WantedCommand {
    /// Finds the commands. A key is found by the primary keys of the operation's names.
    pub async fn find(&self, store: &dyn Records) -> Result<FoundCommands, StoreError> {
        let mut commands = Vec::new();
        let mut omitted = 0;
        match self {
            WantedCommand::Id(id) => {
                let command = read(store, store.find(*id).await?, *id).await?;
                if command.record.is_some() || !command.notes.is_empty() {
                    commands.push(CommandMatch { operation_id: *id, command, holds_reference: None });
                }
            }
            WantedCommand::Reference { tenant, operation, reference } => {
                for name in &operation.names {
                    let entries = store.find_by_reference(tenant, name, reference).await?;
                    omitted += entries.len().saturating_sub(MAX_MATCHES);
                    for ReferenceEntry { operation_id, is_held } in entries.into_iter().take(MAX_MATCHES) {
                        let command = read(store, store.find(operation_id).await?, operation_id).await?;
                        commands.push(CommandMatch { operation_id, command, holds_reference: Some(is_held) });
                    }
                }
                commands.sort_by_key(|found| found.holds_reference != Some(true));
            }
            WantedCommand::Key { principal, operation, key } => {
                for name in &operation.names {
                    let (principal, operation, key) = (principal.clone(), name.clone(), key.clone());
                    let snapshot = store.get(&Scope::new(principal, operation, key).record_id()).await?;
                    let Some(id) = snapshot.record.as_ref().map(|record| record.operation_id) else {
                        continue;
                    };
                    let command = read(store, snapshot, id).await?;
                    commands.push(CommandMatch { operation_id: id, command, holds_reference: None });
                }
            }
        }
        Ok(FoundCommands { commands, omitted })
    }

    /// Returns the text for a search that found nothing: what was looked for, and possible reasons.
    pub fn absent(&self) -> String {
        let (looked_for, reasons, operation) = match self {
            WantedCommand::Id(id) => {
                return format!(
                    "{}. Possible reasons: it has expired and was deleted, or it is in another store",
                    absent(*id)
                );
            }
            WantedCommand::Reference { tenant, operation, reference }
                if operation.references == ReadsReferences::No =>
            {
                return format!(
                    "operation {} has no business references: its rule sets no `business_reference`. No command of \
                     tenant {tenant:?} has {reference:?} from an earlier rule, either. Find the command by its \
                     operation id, or by its caller and key",
                    operation.told()
                );
            }
            WantedCommand::Reference { tenant, operation, reference } => (
                format!(
                    "no command of tenant {tenant:?} and operation {} has the business reference {reference:?}",
                    operation.told()
                ),
                match operation.references {
                    ReadsReferences::NoRule => {
                        "it belongs to another tenant or operation; the operation, which has no rule here, reads no \
                         business reference; or its command was proven not executed, gave the reference back, and was \
                         deleted"
                    }
                    ReadsReferences::Yes | ReadsReferences::No => {
                        "it belongs to another tenant or operation; or its command was proven not executed, gave the \
                         reference back, and was deleted"
                    }
                },
                operation,
            ),
            WantedCommand::Key { principal, operation, key } => (
                format!(
                    "there is no record of this key (hash {}…) for tenant {:?}, caller {:?} and operation {}",
                    key.hash_prefix(),
                    principal.tenant(),
                    principal.caller(),
                    operation.told()
                ),
                "it has expired and was deleted; it belongs to another tenant, caller or operation; or the \
                 request was refused, or never came here",
                operation,
            ),
        };
        let advice = operation.advice.as_ref().map_or(String::new(), |advice| format!(". {advice}"));
        format!("{looked_for}. Possible reasons: {reasons}{advice}")
    }
}

impl CommandMatch {
    /// Returns the command as JSON. The names are stable.
    pub fn to_json(&self) -> Value {
        let mut shown = self.command.to_json();
        shown["operationId"] = self.operation_id.to_string().into();
        if let Some(holds) = self.holds_reference {
            shown["holdsReference"] = holds.into();
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let operation = |name: &str| OperationName::new(name).expect("it is a name");
        let file = "[[operation]]\nname = \"orders.create\"\nmatch = \"POST /orders\"\naliases = [\"orders.make\"]\n\
                    business_reference = \"/order\"\n[[operation]]\nname = \"mails.send\"\nmatch = \"POST /mails\"\n";
        let sources = semel_settings::Sources::new().file("semel.toml", file);
        let config = semel_settings::load(&sources, semel_gateway::service::ADDRESS_CHECKS);
        let config = config.expect("it can be used").config;
        assert_eq!(config.operations[0].names().next(), Some(&operation("orders.create")));
        config
    }

    fn terms(
        operation: &str,
        caller: Option<&str>,
        reference: Option<&str>,
        key: Option<&str>,
    ) -> SearchTerms {
        SearchTerms {
            operation_id: None,
            tenant: Some("acme".to_owned()),
            caller: caller.map(str::to_owned),
            operation: Some(operation.to_owned()),
            reference: reference.map(str::to_owned),
            key: key.map(|key| key.as_bytes().to_vec()),
        }
    }

    #[test]
    fn a_former_name_stands_for_all_names_of_its_operation() {
        for name in ["orders.create", "orders.make"] {
            let wanted = terms(name, None, Some("7"), None).read(&config()).expect("it can be used");
            let told = wanted.absent();
            assert!(told.contains("operation orders.create (formerly orders.make) has"), "{told}");
            assert!(!told.contains("did you mean"), "{told}");
        }
        let mistyped = terms("order.create", None, Some("7"), None).read(&config()).expect("it can be used");
        assert!(mistyped.absent().ends_with("did you mean \"orders.create\"?"), "{}", mistyped.absent());
    }

    #[test]
    fn an_operation_without_business_references_is_named_and_no_reason_is_guessed() {
        let told = |operation: &str| {
            terms(operation, None, Some("7"), None).read(&config()).expect("it can be used").absent()
        };
        let without = told("mails.send");
        assert!(without.starts_with("operation mails.send has no business references"), "{without}");
        assert!(!without.contains("Possible reasons"), "{without}");
        assert!(!told("orders.create").contains("reads no"), "its rule reads one");
        assert!(told("bills.create").contains("has no rule here, reads no business reference"));
    }

    #[test]
    fn the_text_for_an_absent_key_has_its_digest_and_not_the_key() {
        let key = "canary-0123456789abcdef";
        let wanted = terms("orders.create", Some("shop"), None, Some(key)).read(&config());
        let told = wanted.expect("it can be used").absent();
        assert!(told.contains("caller \"shop\"") && !told.contains("canary"), "{told}");
        let digest = told.split("hash ").nth(1).and_then(|rest| rest.split('…').next());
        assert_eq!(digest.map(str::len), Some(8), "{told}");
    }

    #[test]
    fn incomplete_and_ambiguous_terms_are_refused() {
        for terms in [
            SearchTerms::default(),
            terms("orders.create", None, None, None),
            terms("orders.create", Some("shop"), None, None),
            terms("orders.create", None, None, Some("0123456789abcdef")),
            terms("orders.create", Some("shop"), Some("7"), Some("0123456789abcdef")),
            SearchTerms {
                operation_id: Some("x".to_owned()),
                ..terms("orders.create", None, Some("7"), None)
            },
        ] {
            let refused = terms.read(&config()).err();
            assert!(refused.is_some_and(|why| why.contains("or by tenant, operation and reference")));
        }
        let blank =
            terms("orders.create", Some(" shop"), None, Some("0123456789abcdef")).read(&config()).err();
        assert!(blank.is_some_and(|why| why.contains("blank")));
    }
}
