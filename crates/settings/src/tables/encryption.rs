//! `[encryption]`: the keys that stored data is encrypted under: their ids and sources, never the keys themselves.

use semel_core::Plaintext;
use semel_core::vault::is_key_id;

use crate::engine::findings::Findings;
use crate::engine::kind::{Choice, Maybe, ValueKind, ValueRefusal, Words, quoted};
use crate::engine::setting::{Setting, setting};
use crate::engine::source::Origin;
use crate::engine::table::{collected, find, names, read_table};
use crate::engine::value::{SettingValue, Table, ValueContent};
use crate::parts::secret::{SecretSource, SecretTable, one_source};
use crate::parts::text::{CommandLine, FilePath, VariableName};

/// The keys that stored data is encrypted under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Id of the key for new data.
    pub current: String,
    /// Every key for stored data, including the current one, in the order of the file.
    pub keys: Vec<EncryptionKey>,
    /// Treatment of unencrypted stored data.
    pub plaintext: Plaintext,
}

impl Encryption {
    /// Returns true if one of the keys has this id.
    pub fn has(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id == id)
    }
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionKey {
    /// The name of the key in records.
    pub id: String,
    /// The source of the key.
    pub source: SecretSource,
}

impl EncryptionKey {
    /// Returns the path of the setting that names its source.
    pub fn setting(&self) -> String {
        format!("encryption.key.{}.{}", self.id, self.source.setting())
    }
}

/// The `[encryption]` table, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncryptionTable {
    pub(crate) current: Option<String>,
    pub(crate) plaintext: Plaintext,
    pub(crate) keys: Vec<KeyTable>,
    /// True if some of them could not be read.
    are_more: bool,
}

/// One `[[encryption.key]]`, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyTable {
    pub(crate) id: Option<String>,
    pub(crate) secret: SecretTable,
    origin: Option<Origin>,
}

/// `[encryption]`, beside its keys.
pub(crate) const ENCRYPTION: &[Setting<EncryptionTable>] = &[
    setting!(
        "current",
        Maybe<KeyId>,
        current,
        "Id of the key that encrypts stored responses and requests; without it, nothing is encrypted",
        "\"2026-11\""
    ),
    setting!(
        "plaintext",
        Choice<Plaintext>,
        plaintext,
        "Treatment of stored data that is not encrypted (refuse it once `semel keys rotate` has encrypted \
         everything)"
    ),
];

/// `[[encryption.key]]`: exactly one of `file`, `env` and `command`.
pub(crate) const ENCRYPTION_KEY: &[Setting<KeyTable>] = &[
    setting!("id", Maybe<KeyId>, id, "Id of the key, as records name it", "\"2026-11\""),
    setting!(
        "file",
        Maybe<FilePath>,
        secret.file,
        "File that holds the key: 32 bytes, as hexadecimal digits or base64",
        "\"/etc/semel/2026-11.key\""
    ),
    setting!(
        "env",
        Maybe<VariableName>,
        secret.env,
        "Or the environment variable that holds the key",
        "\"STORE_KEY_2026_11\""
    ),
    setting!(
        "command",
        Maybe<CommandLine>,
        secret.command,
        "Or the program that prints the key, with its arguments; run once at the start, without a shell",
        "[\"pass\", \"show\", \"semel/2026-11\"]"
    ),
];

impl EncryptionTable {
    /// Returns true if a key comes from this variable, which is no setting then.
    pub(crate) fn takes(&self, variable: &str) -> bool {
        self.keys.iter().any(|key| key.secret.takes(variable))
    }
}

impl KeyTable {
    /// Returns the path of its settings: by its id, if that is usable.
    pub(crate) fn path(&self) -> String {
        self.id.as_ref().map_or_else(|| "encryption.key".to_owned(), |id| format!("encryption.key.{id}"))
    }
}

/// Reads the table.
pub(crate) fn read(findings: &mut Findings, target: &mut EncryptionTable, table: &Table) {
    for entry in table {
        let path = format!("encryption.{}", entry.name);
        if entry.name == "key" {
            target.are_more |= !matches!(entry.value.content, ValueContent::List(_));
            for value in collected(findings, &path, entry) {
                match read_key(findings, &value) {
                    Some(key) => target.keys.push(key),
                    None => target.are_more = true,
                }
            }
        } else if let Some(setting) = find(ENCRYPTION, &entry.name) {
            findings.read(setting, target, &path, &entry.value);
        } else {
            findings.unknown(entry, &path, names(ENCRYPTION).chain(["key"]));
        }
    }
}

fn read_key(findings: &mut Findings, value: &SettingValue) -> Option<KeyTable> {
    let ValueContent::Table(entries) = &value.content else {
        let message = format!("expected a table, written `[[encryption.key]]`, found {}", value.content);
        findings.error(value.origin.clone(), "encryption.key", message);
        return None;
    };
    let id = entries.iter().find(|entry| entry.name == "id").map(|entry| &entry.value.content);
    let prefix = match id {
        Some(ValueContent::Text(id)) if is_key_id(id) => format!("encryption.key.{id}"),
        _ => "encryption.key".to_owned(),
    };
    let mut key = KeyTable { origin: Some(value.origin.clone()), ..KeyTable::default() };
    read_table(findings, &prefix, ENCRYPTION_KEY, &mut key, entries);
    if id.is_none() {
        let message = "missing: every key has an `id`, by which records name it";
        findings.error(value.origin.clone(), "encryption.key.id", message);
    }
    one_source(findings, &prefix, "the key", entries, &value.origin);
    Some(key)
}

/// Checks the table, and returns the encryption settings if they are consistent. Without keys, nothing is
/// encrypted.
pub(crate) fn check(findings: &mut Findings, table: &EncryptionTable) -> Option<Encryption> {
    for (index, key) in table.keys.iter().enumerate() {
        if key.id.is_some() && table.keys[..index].iter().any(|other| other.id == key.id) {
            let path = format!("{}.id", key.path());
            findings.error(findings.origin(&path), &path, "another key has this id already");
        }
    }
    if table.are_more || !findings.are_readable(&["encryption.current"]) {
        return None;
    }
    let Some(current) = &table.current else {
        let first = table.keys.first()?.origin.clone().unwrap_or(Origin::Default);
        let message = "missing: the id of the key that encrypts new data";
        findings.error(first, "encryption.current", message);
        return None;
    };
    if !table.keys.iter().any(|key| key.id.as_ref() == Some(current)) {
        let message = format!("\"{current}\" is not the id of any `[[encryption.key]]`");
        findings.error(findings.origin("encryption.current"), "encryption.current", message);
        return None;
    }
    let keys = table
        .keys
        .iter()
        .map(|key| Some(EncryptionKey { id: key.id.clone()?, source: key.secret.source()? }));
    let keys = keys.collect::<Option<_>>()?;
    Some(Encryption { current: current.clone(), keys, plaintext: table.plaintext })
}

/// Warns of key files that others can read.
pub(crate) fn warn(findings: &mut Findings, encryption: &Encryption) {
    for key in encryption.keys.iter().filter(|key| key.source.is_readable_by_others()) {
        let message = "other users of this machine can read the key: run `chmod 600` on the file";
        findings.warn(&key.setting(), message);
    }
}

/// The id of a key.
pub(crate) struct KeyId;

impl ValueKind for KeyId {
    type Value = String;

    fn expected() -> String {
        "the id of a key, such as \"2026-11\": 1 to 64 letters, digits, dots, dashes and underscores"
            .to_owned()
    }

    fn parse(text: &str) -> Result<String, ValueRefusal> {
        if is_key_id(text) { Ok(text.to_owned()) } else { Err(ValueRefusal::Unexpected) }
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

impl Words for Plaintext {
    const WORDS: &'static [(&'static str, Self)] =
        &[("accept", Plaintext::Accept), ("refuse", Plaintext::Refuse)];
}
