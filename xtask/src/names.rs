//! `cargo xtask names`: refuses a type name that the product uses twice, so that one word means one thing and
//! a search finds it.
//!
//! Types under `#[cfg(test)]` do not count, nor do counterparts: types of one name whose files differ only in
//! the database (`sqlite`, `postgres`, `memory`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::Item;

use crate::root;

/// Parts of a path that stand for one of several databases.
const DATABASES: [&str; 3] = ["memory", "postgres", "sqlite"];

/// Checks every crate of the product.
pub(crate) fn check() -> Result<(), String> {
    let crates = root().join("crates");
    let mut files = Vec::new();
    for folder in entries(&crates)? {
        find(&folder.join("src"), &mut files)?;
    }
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let place = file.strip_prefix(&crates).unwrap_or(file).display().to_string();
        for name in names(&parsed.items) {
            types.entry(name).or_default().push(place.clone());
        }
    }
    let count = types.len();
    let repeated = repeated(types);
    if repeated.is_empty() {
        println!("── names: {count} types, each with a name of its own");
        return Ok(());
    }
    Err(format!("{} type names are used more than once:\n{}", repeated.len(), repeated.join("\n")))
}

/// Returns a line for each name that several files use, counterparts aside.
fn repeated(types: BTreeMap<String, Vec<String>>) -> Vec<String> {
    let line = |(name, mut places): (String, Vec<String>)| {
        places.sort();
        places.sort_by_key(|place| concept(place));
        places.dedup_by_key(|place| concept(place));
        (places.len() > 1).then(|| format!("{name}: {}", places.join(", ")))
    };
    types.into_iter().filter_map(line).collect()
}

/// Returns the place without its database.
fn concept(place: &str) -> String {
    let is_database = |part: &&str| DATABASES.contains(&part.trim_end_matches(".rs"));
    place
        .split('/')
        .map(|part| if is_database(&part) { "DATABASE" } else { part })
        .collect::<Vec<_>>()
        .join("/")
}

/// Returns the names of the types that these items define, inline modules included.
fn names(items: &[Item]) -> Vec<String> {
    let mut found = Vec::new();
    for item in items {
        let (attributes, name) = match item {
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Mod(item) => (&item.attrs, None),
            _ => continue,
        };
        if attributes.iter().any(is_for_tests) {
            continue;
        }
        found.extend(name.map(ToString::to_string));
        if let Item::Mod(syn::ItemMod { content: Some((_, items)), .. }) = item {
            found.extend(names(items));
        }
    }
    found
}

/// Returns true for `#[cfg(test)]` and `#[cfg(doctest)]`, also within `all(…)`.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let words = list.tokens.to_string();
    list.path.is_ident("cfg")
        && words.split(|c: char| !c.is_alphanumeric()).any(|word| word.ends_with("test"))
}

/// Finds the Rust files below a folder. Files of tests are named `tests`, or lie in a folder of that name.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    for path in entries(folder)? {
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = listed.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(types: &[(&str, &[&str])]) -> Vec<String> {
        let owned = |places: &[&str]| places.iter().map(|&place| place.to_owned()).collect();
        repeated(types.iter().map(|(name, places)| ((*name).to_owned(), owned(places))).collect())
    }

    #[test]
    fn a_type_name_in_two_files_is_refused_unless_the_files_are_counterparts() {
        assert_eq!(lines(&[("Answer", &["core/src/a.rs"])]), Vec::<String>::new());
        assert_eq!(
            lines(&[("Answer", &["http/src/a.rs", "core/src/a.rs"])]),
            ["Answer: core/src/a.rs, http/src/a.rs"]
        );
        let counterparts = ["stores/src/sqlite/job.rs", "stores/src/postgres/job.rs"];
        assert_eq!(lines(&[("Job", &counterparts)]), Vec::<String>::new());
        assert_eq!(
            lines(&[(
                "Job",
                &["stores/src/sqlite/job.rs", "http/src/worker.rs", "stores/src/postgres/job.rs"]
            )]),
            ["Job: http/src/worker.rs, stores/src/postgres/job.rs"]
        );
    }

    #[test]
    fn types_of_inline_modules_count_and_those_of_tests_do_not() {
        let file = syn::parse_file(
            "struct A; mod inner { enum B {} } #[cfg(test)] mod tests { struct C; } \
             #[cfg(all(doctest, feature = \"x\"))] struct D; #[cfg(feature = \"y\")] trait E {}",
        );
        assert_eq!(names(&file.expect("it parses").items), ["A", "B", "E"]);
    }
}
