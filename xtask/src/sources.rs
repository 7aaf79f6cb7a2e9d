//! The sources of the code: the contents of `Cargo.lock`, and the rules for every crate of ours.

use crate::root;

/// A package in `Cargo.lock`.
pub(crate) struct Locked {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) source: Option<String>,
    pub(crate) checksum: Option<String>,
}

/// Returns all packages in `Cargo.lock`.
pub(crate) fn locked() -> Result<Vec<Locked>, String> {
    let text = std::fs::read_to_string(root().join("Cargo.lock"));
    let text = text.map_err(|error| format!("Cargo.lock: {error}"))?;
    Ok(read(&text))
}

fn read(lock: &str) -> Vec<Locked> {
    let package = |block: &str| {
        let value = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            line.map(|value| value.trim_end_matches('"').to_owned())
        };
        let (name, version) = (value("name")?, value("version")?);
        Some(Locked { name, version, source: value("source"), checksum: value("checksum") })
    };
    lock.split("[[package]]").filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use serde_json::Value;

    use super::*;
    use crate::databases::output;

    /// The only registry for third-party code.
    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

    /// Returns the crates of this workspace.
    fn ours() -> Vec<Value> {
        let mut cargo = Command::new(env!("CARGO"));
        let said = output(cargo.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root()));
        let said: Value = serde_json::from_str(&said.expect("cargo says it")).expect("it is JSON");
        said["packages"].as_array().cloned().expect("it is a list")
    }

    #[test]
    fn every_package_comes_from_the_registry_with_a_checksum_or_from_here() {
        let ours = ours();
        let ours: BTreeSet<&str> = ours.iter().filter_map(|package| package["name"].as_str()).collect();
        let locked = locked().expect("it can be read");
        assert!(locked.len() > ours.len(), "it was read");
        for Locked { name, version, source, checksum } in locked {
            match source {
                None => assert!(
                    ours.contains(name.as_str()),
                    "{name} {version} comes from somewhere on this machine"
                ),
                Some(source) => {
                    assert_eq!(source, REGISTRY, "{name} {version}");
                    let checksum = checksum.unwrap_or_default();
                    let is_digest =
                        checksum.len() == 64 && checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
                    assert!(is_digest, "{name} {version} has no checksum");
                }
            }
        }
    }

    #[test]
    fn every_crate_of_ours_forbids_unsafe_code() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("it is there");
        let (_, lints) = manifest.split_once("\n[workspace.lints.rust]\n").expect("there are lints");
        let lints = lints.split("\n[").next().unwrap_or_default();
        assert!(lints.lines().any(|line| line == "unsafe_code = \"forbid\""), "no crate can allow it again");
        let ours = ours();
        assert!(ours.len() > 8);
        for package in ours {
            let path = package["manifest_path"].as_str().expect("it is somewhere");
            let manifest = std::fs::read_to_string(path).expect("it is there");
            assert!(
                manifest.contains("\n[lints]\nworkspace = true\n"),
                "{path} does not take the workspace's lints"
            );
        }
    }
    #[test]
    fn the_shipped_program_has_no_levers_for_tests() {
        let mut cargo = Command::new(env!("CARGO"));
        let arguments = ["tree", "--package", "semel-server", "--edges", "normal", "--prefix", "none"];
        cargo.args(arguments).args(["--format", "{p} features={f}"]).current_dir(root());
        let tree = output(&mut cargo).expect("cargo says it");
        let features = |name: &str| {
            let line = tree.lines().find(|line| line.split(' ').next() == Some(name));
            line.and_then(|line| line.split_once("features="))
                .expect("it is part of the program")
                .1
                .to_owned()
        };
        assert_eq!(features("semel-faults"), "", "fault points");
        assert!(!features("semel-stores").split(',').any(|feature| feature == "test-levers"));
        assert!(!tree.contains("semel-testkit"), "the test kit");
    }
    #[test]
    fn cargo_run_at_the_root_runs_the_gateway() {
        let mut cargo = Command::new(env!("CARGO"));
        let said = output(cargo.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root()));
        let said: Value = serde_json::from_str(&said.expect("cargo says it")).expect("it is JSON");
        let members = said["workspace_default_members"].as_array().expect("it is a list");
        assert_eq!(members.len(), 1, "{members:?}");
        assert!(members[0].as_str().is_some_and(|member| member.contains("crates/server")), "{members:?}");
    }
}
