//! `store.md`: the traits that a store implements, from their source in `crates/core`.

use std::path::Path;

use regex::Regex;
use syn::{Attribute, Expr, Item, ItemTrait, Lit, Meta, TraitItem, TypeParamBound};

use super::markdown::{cell, code, codes, first_sentence, table};
use super::{assert_page, sources};
use crate::snapshot::root;

const HEAD: &str = "\
# The store contract

The traits of `semel_core` that a store implements, with the first sentence about each method. The documentation of the traits
(`cargo doc -p semel-core`) is the contract, and `semel_testkit::conformance` tests it. Begin with
[Write a store](../how-to/write-a-store.md).
";

/// Traits of core that no store implements.
const OTHERS: [&str; 3] = ["Clock", "Ids", "Vault"];

/// Returns the public traits of core that a store implements: those of the modules `store` first.
fn traits() -> Vec<ItemTrait> {
    let folder = root().join("crates/core/src");
    let mut found = sources(&folder);
    let is_of_store = |path: &Path| {
        path.strip_prefix(&folder).is_ok_and(|path| path.starts_with("store")) || path.ends_with("store.rs")
    };
    found.sort_by_key(|path| (!is_of_store(path), path.clone()));
    let items = found.iter().flat_map(|path| {
        let text = std::fs::read_to_string(path).expect("it was listed");
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())).items
    });
    let public = items.filter_map(|item| match item {
        Item::Trait(item) if matches!(item.vis, syn::Visibility::Public(_)) => Some(item),
        _ => None,
    });
    public.filter(|item| !OTHERS.contains(&&*item.ident.to_string())).collect()
}

/// Returns the first sentence of a doc comment, without links.
fn documented(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let paragraph = attributes.iter().filter_map(line).take_while(|line| !line.is_empty());
    let paragraph = paragraph.collect::<Vec<_>>().join(" ");
    let links = Regex::new(r"\[(`?[^\]]+`?)\](\([^)]*\))?").expect("it is a pattern");
    cell(first_sentence(&links.replace_all(&paragraph, "$1")))
}

/// Returns the traits that this one includes.
fn included(item: &ItemTrait) -> Vec<String> {
    let name = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    };
    item.supertraits
        .iter()
        .filter_map(name)
        .filter(|name| !["Send", "Sync"].contains(&name.as_str()))
        .collect()
}

fn section(item: &ItemTrait) -> String {
    let included = included(item);
    let includes = match &included[..] {
        [] => String::new(),
        names => format!(" Includes {}.", codes(names.iter().map(String::as_str))),
    };
    let methods = item.items.iter().filter_map(|item| match item {
        TraitItem::Fn(method) => Some(method),
        _ => None,
    });
    let rows: Vec<_> = methods
        .map(|method| {
            let needed = if method.default.is_some() { "no" } else { "yes" };
            [code(&method.sig.ident.to_string()), needed.to_owned(), documented(&method.attrs)]
        })
        .collect();
    let table = if rows.is_empty() {
        String::new()
    } else {
        format!("\n{}", table(["method", "required", "meaning"], rows))
    };
    format!("\n## `{}`\n\n{}{includes}\n{table}", item.ident, documented(&item.attrs))
}

#[test]
fn the_page_of_the_store_contract_lists_every_method() {
    let traits = traits();
    assert!(traits.iter().any(|item| item.ident == "Store"), "the sources can be read");
    assert_page("store.md", &format!("{HEAD}{}", traits.iter().map(section).collect::<String>()));
}
