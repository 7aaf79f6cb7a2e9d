//! `cargo xtask sbom`: lists the components of the program `semel` as CycloneDX 1.5.
//!
//! Cargo lists the packages of this one program, with its features and without tests; their details come from
//! their manifests and from `Cargo.lock`. The same tree gives the same bytes: no time, no random number.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use crate::databases::{output, target};
use crate::root;

/// Package that is shipped.
const SHIPPED: &str = "semel-server";

/// Default build target.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Name and version.
type Package = (String, String);

/// Writes the document beside cargo's output.
pub(crate) fn write(triple: &str) -> Result<(), String> {
    let path = target()?.join("semel.cdx.json");
    let document = format!("{:#}\n", document(triple)?);
    std::fs::write(&path, document).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn document(triple: &str) -> Result<Value, String> {
    let shipped = tree(&cargo(&[
        "tree", "-p", SHIPPED, "--edges", "normal", "--target", triple, "--prefix", "depth", "--format",
        " {p}",
    ])?)?;
    let metadata = cargo(&["metadata", "--format-version", "1", "--filter-platform", triple])?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let manifests: BTreeMap<Package, &Value> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|package| ((text(&package["name"]), text(&package["version"])), package))
        .collect();
    let checksums = checksums()?;
    let component = |package: &Package, kind: &str| {
        let manifest = manifests.get(package).copied().unwrap_or(&Value::Null);
        describe(package, kind, manifest, checksums.get(package))
    };
    let (program, _) =
        shipped.iter().find(|((name, _), _)| name == SHIPPED).ok_or("cargo tree has no root")?;
    let others = shipped.keys().filter(|package| *package != program);
    let edge = |(package, needs): (&Package, &BTreeSet<Package>)| json!({ "ref": purl(package), "dependsOn": needs.iter().map(purl).collect::<Vec<_>>() });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": component(program, "application"),
            "properties": [{ "name": "cargo:target", "value": triple }],
        },
        "components": others.map(|package| component(package, "library")).collect::<Vec<_>>(),
        "dependencies": shipped.iter().map(edge).collect::<Vec<_>>(),
    }))
}

fn cargo(arguments: &[&str]) -> Result<String, String> {
    output(Command::new(env!("CARGO")).args(arguments).arg("--locked").current_dir(root()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the dependencies of each package. Lines are `DEPTH NAME vVERSION`; dependencies stand below their
/// dependent, at the first occurrence of a package.
fn tree(lines: &str) -> Result<BTreeMap<Package, BTreeSet<Package>>, String> {
    let mut needs: BTreeMap<Package, BTreeSet<Package>> = BTreeMap::new();
    let mut above: Vec<Package> = Vec::new();
    for line in lines.lines() {
        let mut words = line.split_whitespace();
        let depth = words.next().and_then(|word| word.parse::<usize>().ok());
        let version = |word: &str| word.strip_prefix('v').map(str::to_owned);
        let package = words.next().zip(words.next().and_then(version));
        let (Some(depth), Some((name, version))) = (depth, package) else {
            return Err(format!("cargo tree says {line:?}, which is no package"));
        };
        let package = (name.to_owned(), version);
        above.truncate(depth);
        if let Some(parent) = above.last() {
            needs.entry(parent.clone()).or_default().insert(package.clone());
        }
        needs.entry(package.clone()).or_default();
        above.push(package);
    }
    Ok(needs)
}

/// Returns the checksum of each package from a registry.
fn checksums() -> Result<BTreeMap<Package, String>, String> {
    let packages = crate::sources::locked()?.into_iter();
    let fetched = packages.filter(|locked| locked.source.is_some());
    Ok(fetched.filter_map(|locked| Some(((locked.name, locked.version), locked.checksum?))).collect())
}

fn purl((name, version): &Package) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn describe(package: &Package, kind: &str, manifest: &Value, checksum: Option<&String>) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": package.0,
        "version": package.1,
        "purl": purl(package),
    });
    if let Some(licence) = manifest["license"].as_str() {
        // An older way to write "or".
        let expression = licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_tree_is_read_with_the_children_of_each_package() {
        let lines = "0 a v1.0.0 (/somewhere)\n1 b v2.0.0 (proc-macro)\n2 c v3.0.0+x\n1 c v3.0.0+x (*)\n";
        let package = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let (a, b, c) = (package("a", "1.0.0"), package("b", "2.0.0"), package("c", "3.0.0+x"));
        let expected =
            [(a, BTreeSet::from([b.clone(), c.clone()])), (b, [c.clone()].into()), (c.clone(), [].into())];
        assert_eq!(tree(lines).expect("it is one"), BTreeMap::from(expected));
        assert_eq!(purl(&c), "pkg:cargo/c@3.0.0%2Bx");
        assert!(tree("no tree").is_err());
    }

    #[test]
    fn only_shipped_components_are_listed() {
        let document = document(TARGET).expect("cargo says it");
        assert_eq!(document, self::document(TARGET).expect("cargo says it again"));
        assert_eq!((&document["bomFormat"], &document["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
        let program = &document["metadata"]["component"];
        assert_eq!((&program["name"], &program["type"]), (&SHIPPED.into(), &"application".into()));

        let components = document["components"].as_array().expect("it is a list");
        let references: BTreeSet<&str> = components
            .iter()
            .chain([program])
            .filter_map(|component| component["bom-ref"].as_str())
            .collect();
        assert_eq!(references.len(), components.len() + 1, "each has one of its own");
        let mut names = BTreeSet::new();
        for component in components {
            let name = component["name"].as_str().expect("it has a name");
            names.insert(name);
            assert_eq!(component["type"], "library");
            assert_eq!(component["purl"], component["bom-ref"]);
            assert!(component["version"].is_string(), "{name}");
            let licence = component["licenses"][0]["expression"].as_str().expect("it has a licence");
            assert!(!licence.contains('/') && !licence.contains("  "), "{name}: {licence}");
            let checksum = component["hashes"][0]["content"].as_str().map(str::len);
            assert_eq!(checksum, (!name.starts_with("semel-")).then_some(64), "{name}");
        }
        let edges = document["dependencies"].as_array().expect("it is a list");
        assert_eq!(edges.len(), references.len());
        for edge in edges {
            let needs = edge["dependsOn"].as_array().into_iter().flatten();
            assert!(
                needs
                    .chain([&edge["ref"]])
                    .all(|name| name.as_str().is_some_and(|name| references.contains(name)))
            );
        }

        // Dependencies in its manifest: in any case, or for tests only.
        let manifest = cargo(&["metadata", "--format-version", "1", "--no-deps"]).expect("cargo says it");
        let manifest: Value = serde_json::from_str(&manifest).expect("it is JSON");
        let packages = manifest["packages"].as_array().into_iter().flatten();
        let asked: Vec<&Value> = packages
            .filter(|package| package["name"] == SHIPPED)
            .flat_map(|package| package["dependencies"].as_array().into_iter().flatten())
            .collect();
        let normal = asked.iter().filter(|needed| needed["kind"].is_null() && needed["target"].is_null());
        let normal: Vec<String> = normal.map(|needed| text(&needed["name"])).collect();
        assert!(normal.len() > 20);
        for name in &normal {
            assert!(names.contains(name.as_str()), "{name} is shipped");
        }
        let of_other_crates = ["proptest", "sqlx"];
        for name in ["semel-testkit", "prometheus-parse", "tempfile"].iter().chain(&of_other_crates) {
            let of_tests = asked.iter().any(|needed| needed["name"] == *name && needed["kind"] == "dev");
            assert!(of_tests || of_other_crates.contains(name), "{name} is there for tests");
            assert!(!names.contains(name), "{name} is not shipped");
        }
    }
}
