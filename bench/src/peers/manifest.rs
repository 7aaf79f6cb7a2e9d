//! Manifests of the peers: `bench/peers/*/peer.toml`, one for each package, with a variant for each store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Error, sources};

/// Installation method of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Install {
    /// A package of this workspace.
    Workspace,
    /// A Cargo workspace of its own, with its lock file.
    Cargo,
    /// `npm ci`.
    Npm,
    /// A virtual environment, and `pip install`.
    Python,
    /// Not installable when its manifest was written. Each run tries again.
    Missing,
}

/// Store in which a peer keeps its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// No store.
    None,
    /// Memory of its process.
    Memory,
    /// A SQLite file.
    Sqlite,
    /// A PostgreSQL server, with `fsync` and `synchronous_commit` on.
    Postgresql,
    /// A Redis with Debian's defaults: periodic snapshots.
    Redis,
    /// A Redis with `appendonly yes` and `appendfsync always`.
    RedisDurable,
}

impl Store {
    /// Returns true if the store is a Redis.
    pub fn is_redis(self) -> bool {
        matches!(self, Store::Redis | Store::RedisDurable)
    }

    /// Returns true if several processes can share the store.
    pub fn is_shared(self) -> bool {
        !matches!(self, Store::None | Store::Memory)
    }

    /// Returns the store's name for people.
    pub fn words(self) -> &'static str {
        match self {
            Store::None => "none",
            Store::Memory => "memory",
            Store::Sqlite => "SQLite",
            Store::Postgresql => "PostgreSQL",
            Store::Redis => "Redis, defaults",
            Store::RedisDurable => "Redis, appendfsync always",
        }
    }
}

/// One peer on one store.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Name in tables and on command lines.
    pub name: String,
    /// Package of the peer; for a bare handler, the package that is measured with it.
    pub package: String,
    /// Software that runs and has the version: the package, or the framework of a bare handler.
    pub runs: String,
    /// Exact version.
    pub version: String,
    /// Programming language.
    pub language: String,
    /// Installation method.
    pub install: Install,
    /// Store for responses.
    pub store: Store,
    /// Name of the peer without protection: its floor.
    pub floor: Option<String>,
    /// Description of when responses are stored, and of their durability.
    pub durability: String,
    /// Options that are set, with reasons.
    pub configuration: String,
    /// Default lease of a claim.
    pub claim_time: String,
    /// Profile of status codes for `semel verify`.
    pub profile: String,
    /// Program, relative to the installation folder; for npm and Python the script.
    pub(super) program: String,
    /// Entries of `bench/peers` that it needs besides its own folder.
    pub(super) shared: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
}

impl Peer {
    /// Returns the name, with the version if there is one.
    pub fn named(&self) -> String {
        match self.version.as_str() {
            "none" => self.name.clone(),
            version => format!("{} {version}", self.name),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    package: String,
    /// Framework of a bare handler, if not the package.
    runs: Option<String>,
    version: String,
    language: String,
    install: Install,
    #[serde(default)]
    program: String,
    #[serde(default)]
    shared: Vec<String>,
    #[serde(default = "ietf")]
    profile: String,
    configuration: String,
    durability: String,
    claim_time: String,
    variant: Vec<Variant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    store: Store,
    floor: Option<String>,
    /// Overrides of the package's values.
    runs: Option<String>,
    version: Option<String>,
    program: Option<String>,
    configuration: Option<String>,
    durability: Option<String>,
    claim_time: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

fn ietf() -> String {
    "ietf".into()
}

/// Returns every peer, sorted by language and name.
pub fn all() -> Result<Vec<Peer>, Error> {
    let mut peers = Vec::new();
    for entry in std::fs::read_dir(sources())? {
        let folder = entry?.path();
        let file = folder.join("peer.toml");
        if !file.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&file)?;
        let manifest: Manifest =
            toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        for variant in &manifest.variant {
            peers.push(peer(&manifest, variant, folder.clone()));
        }
    }
    peers.sort_by(|a, b| (&a.language, &a.package, &a.name).cmp(&(&b.language, &b.package, &b.name)));
    Ok(peers)
}

/// Returns the peers with these names, or all if there are none. A package's name selects all of its variants.
pub fn named(names: &[String]) -> Result<Vec<Peer>, Error> {
    let all = all()?;
    if names.is_empty() {
        return Ok(all);
    }
    let is_meant = |peer: &Peer, name: &String| peer.name == *name || peer.package == *name;
    if let Some(name) = names.iter().find(|name| !all.iter().any(|peer| is_meant(peer, name))) {
        let known: Vec<&str> = all.iter().map(|peer| peer.name.as_str()).collect();
        return Err(format!("there is no peer `{name}`; there are {}", known.join(", ")).into());
    }
    Ok(all.into_iter().filter(|peer| names.iter().any(|name| is_meant(peer, name))).collect())
}

fn peer(manifest: &Manifest, variant: &Variant, folder: PathBuf) -> Peer {
    let or = |own: &Option<String>, common: &String| own.clone().unwrap_or_else(|| common.clone());
    Peer {
        name: variant.name.clone(),
        package: manifest.package.clone(),
        runs: or(&variant.runs, manifest.runs.as_ref().unwrap_or(&manifest.package)),
        version: or(&variant.version, &manifest.version),
        language: manifest.language.clone(),
        install: manifest.install,
        store: variant.store,
        floor: variant.floor.clone(),
        durability: or(&variant.durability, &manifest.durability),
        configuration: or(&variant.configuration, &manifest.configuration),
        claim_time: or(&variant.claim_time, &manifest.claim_time),
        profile: manifest.profile.clone(),
        program: or(&variant.program, &manifest.program),
        shared: manifest.shared.clone(),
        environment: variant.environment.clone(),
        folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_is_readable_and_every_name_unique() {
        let peers = all().expect("they can be read");
        let mut names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), peers.len());
    }

    #[test]
    fn every_floor_of_a_peer_has_no_store() {
        let peers = all().expect("they can be read");
        for peer in &peers {
            let Some(floor) = &peer.floor else {
                assert!(peer.store == Store::None || peer.install == Install::Missing, "{}", peer.name);
                continue;
            };
            let floor = peers.iter().find(|other| other.name == *floor).expect("it is a peer");
            assert_eq!(floor.store, Store::None, "{}", peer.name);
        }
    }

    #[test]
    fn bare_handler_runs_its_framework_and_peer_its_package() {
        let peers = all().expect("they can be read");
        let run: Vec<_> = peers.iter().filter(|peer| peer.store == Store::None).collect();
        assert!(!run.is_empty());
        for bare in run {
            assert_ne!(bare.runs, bare.package, "{}", bare.name);
            assert_ne!(bare.runs, bare.name, "{}", bare.name);
        }
        for peer in peers.iter().filter(|peer| peer.store != Store::None) {
            assert_eq!(peer.runs, peer.package, "{}", peer.name);
        }
    }

    #[test]
    fn unknown_name_is_refused_with_the_known_names() {
        let why = named(&["nobody".into()]).expect_err("there is none").to_string();
        assert!(why.contains("nobody") && why.contains("bare-axum"), "{why}");
    }
}
