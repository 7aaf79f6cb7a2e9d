//! `cargo xtask imports`: refuses import cycles between sibling modules, in every folder of every crate.
//!
//! A module may use its parents and its children. Between two siblings, imports go one way only, also where they pass
//! through `super`, a group or a re-export. Items under `#[cfg(test)]` do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use syn::visit::Visit;

use crate::databases::output;
use crate::root;

/// A path from the root of a crate, without the word `crate`.
type FullPath = Vec<String>;

/// Maximum number of re-exports that one path is followed through.
const MAX_JUMPS: usize = 16;

/// Checks every crate of the workspace, and prints each cycle with one import for every step of it.
pub(crate) fn check() -> Result<(), String> {
    let mut cycles = Vec::new();
    let mut modules = 0;
    for (name, source) in targets()? {
        let tree = Tree::read(&source)?;
        modules += tree.modules.len();
        cycles.extend(tree.cycles().into_iter().map(|cycle| format!("{name}: {cycle}")));
    }
    if cycles.is_empty() {
        println!("── imports: {modules} modules, no cycle between siblings");
        return Ok(());
    }
    Err(format!("{} import cycles between sibling modules:\n{}", cycles.len(), cycles.join("\n")))
}

/// Returns the name and the root file of every library and program of the workspace.
fn targets() -> Result<Vec<(String, PathBuf)>, String> {
    let mut cargo = Command::new(env!("CARGO"));
    let said = output(cargo.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root()))?;
    let said: Value = serde_json::from_str(&said).map_err(|error| format!("cargo metadata: {error}"))?;
    let mut found = Vec::new();
    for package in said["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            let kinds = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let counts = kinds.into_iter().any(|kind| matches!(kind, "lib" | "bin"));
            if let (true, Some(name), Some(source)) =
                (counts, package["name"].as_str(), target["src_path"].as_str())
            {
                found.push((name.to_owned(), source.into()));
            }
        }
    }
    Ok(found)
}

/// The modules of one crate.
#[derive(Default)]
struct Tree {
    modules: BTreeMap<FullPath, Module>,
}

/// One module: its children, the names it imports, and every path it mentions.
#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    imported: BTreeMap<String, FullPath>,
    mentioned: BTreeSet<FullPath>,
}

impl Tree {
    fn read(source: &Path) -> Result<Tree, String> {
        let mut tree = Tree::default();
        let folder = source.parent().unwrap_or(Path::new(""));
        tree.read_file(&Vec::new(), source, folder)?;
        Ok(tree)
    }

    fn read_file(&mut self, at: &FullPath, source: &Path, folder: &Path) -> Result<(), String> {
        let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", source.display());
        let text = std::fs::read_to_string(source).map_err(|error| fault(&error))?;
        let file = syn::parse_file(&text).map_err(|error| fault(&error))?;
        self.read_items(at, &file.items, folder)
    }

    fn read_items(&mut self, at: &FullPath, items: &[syn::Item], folder: &Path) -> Result<(), String> {
        let items: Vec<&syn::Item> = items.iter().filter(|item| !is_for_tests(item)).collect();
        let children = items.iter().filter_map(|item| match item {
            syn::Item::Mod(module) => Some(module.ident.to_string()),
            _ => None,
        });
        let mut module = Module { children: children.collect(), ..Module::default() };
        let mut reader = Reader { at, module: &mut module };
        // Names first: a path may precede the import of its first word.
        for item in &items {
            if let syn::Item::Use(item) = item {
                reader.import(&item.tree, &mut Vec::new());
            }
        }
        for item in &items {
            if !matches!(item, syn::Item::Mod(_) | syn::Item::Use(_)) {
                reader.visit_item(item);
            }
        }
        self.modules.insert(at.clone(), module);
        for item in items {
            if let syn::Item::Mod(module) = item {
                self.read_child(at, module, folder)?;
            }
        }
        Ok(())
    }

    fn read_child(&mut self, parent: &FullPath, module: &syn::ItemMod, folder: &Path) -> Result<(), String> {
        let name = module.ident.to_string();
        let at: FullPath = [&parent[..], std::slice::from_ref(&name)].concat();
        let below = folder.join(&name);
        if let Some((_, items)) = &module.content {
            return self.read_items(&at, items, &below);
        }
        let file = folder.join(format!("{name}.rs"));
        let file = if file.is_file() { file } else { below.join("mod.rs") };
        self.read_file(&at, &file, &below)
    }

    /// Returns the module that defines the item of this path.
    fn home(&self, path: &FullPath) -> FullPath {
        let mut path = path.clone();
        for _ in 0..MAX_JUMPS {
            let mut at = FullPath::new();
            let mut jump = None;
            for (index, word) in path.iter().enumerate() {
                let Some(module) = self.modules.get(&at) else { break };
                if module.children.contains(word) {
                    at.push(word.clone());
                } else {
                    let rest = &path[index + 1..];
                    jump = module.imported.get(word).map(|target| [&target[..], rest].concat());
                    break;
                }
            }
            match jump {
                Some(target) if target != path => path = target,
                _ => return at,
            }
        }
        Vec::new()
    }

    /// Returns one line for every group of siblings that import each other.
    fn cycles(&self) -> Vec<String> {
        // For every parent: which child imports which other, and by which path.
        let mut levels: BTreeMap<FullPath, BTreeMap<(String, String), String>> = BTreeMap::new();
        for (from, module) in &self.modules {
            for path in &module.mentioned {
                let to = self.home(path);
                let shared = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
                if let (Some(importer), Some(imported)) = (from.get(shared), to.get(shared)) {
                    let edge = (importer.clone(), imported.clone());
                    let shown = format!("{} uses {}", from.join("::"), path.join("::"));
                    levels.entry(from[..shared].to_vec()).or_default().entry(edge).or_insert(shown);
                }
            }
        }
        levels.iter().flat_map(|(parent, edges)| cycles_of(parent, edges)).collect()
    }
}

/// Returns one line for every strongly connected group of more than one module.
fn cycles_of(parent: &FullPath, edges: &BTreeMap<(String, String), String>) -> Vec<String> {
    let names: BTreeSet<&str> = edges.keys().flat_map(|(from, to)| [from.as_str(), to.as_str()]).collect();
    let reached = |start: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start.to_owned()];
        while let Some(name) = open.pop() {
            let next = edges.keys().filter(|(from, _)| *from == name).map(|(_, to)| to.clone());
            open.extend(next.filter(|to| seen.insert(to.clone())));
        }
        seen
    };
    let reaches: BTreeMap<&str, BTreeSet<String>> = names.iter().map(|name| (*name, reached(name))).collect();
    let mut told = BTreeSet::new();
    let mut cycles = Vec::new();
    for name in &names {
        let group: Vec<&str> = names
            .iter()
            .copied()
            .filter(|other| reaches[name].contains(*other) && reaches[other].contains(*name))
            .collect();
        if group.len() < 2 || !told.insert(group.clone()) {
            continue;
        }
        let inside =
            |(from, to): &&(String, String)| group.contains(&from.as_str()) && group.contains(&to.as_str());
        let steps = edges.keys().filter(inside).map(|edge| format!("\n    {}", edges[edge]));
        let place = if parent.is_empty() { "crate".to_owned() } else { parent.join("::") };
        let steps: String = steps.collect();
        cycles.push(format!("in {place}, {} modules: {}{steps}", group.len(), group.join(" ")));
    }
    cycles
}

/// Returns true for an item that only tests compile.
fn is_for_tests(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// Collects the imports and the paths of one module.
struct Reader<'a> {
    at: &'a FullPath,
    module: &'a mut Module,
}

impl Reader<'_> {
    fn import(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
            syn::UseTree::Name(name) => self.name(name.ident.to_string(), &name.ident, before),
            syn::UseTree::Rename(rename) => self.name(rename.rename.to_string(), &rename.ident, before),
            syn::UseTree::Glob(_) => {
                if let Some(path) = self.full(before) {
                    self.module.mentioned.insert(path);
                }
            }
        }
    }

    /// Records that `local` stands for the last word of an import.
    fn name(&mut self, local: String, last: &syn::Ident, before: &[String]) {
        let mut words = before.to_vec();
        let (last, is_self) = (last.to_string(), last == "self");
        if !is_self {
            words.push(last);
        }
        let Some(path) = self.full(&words) else { return };
        let local = if is_self && local == "self" { words.last().cloned().unwrap_or(local) } else { local };
        self.module.mentioned.insert(path.clone());
        self.module.imported.insert(local, path);
    }

    /// Returns the path from the root of the crate; `None` for another crate's.
    fn full(&self, words: &[String]) -> Option<FullPath> {
        let (first, rest) = words.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([&self.at[..], rest].concat()),
            "super" => {
                let above = words.iter().take_while(|word| *word == "super").count();
                let parent = self.at.get(..self.at.len().checked_sub(above)?)?;
                Some([parent, &words[above..]].concat())
            }
            name if self.module.children.contains(name) => Some([&self.at[..], words].concat()),
            name => self.module.imported.get(name).map(|path| [&path[..], rest].concat()),
        }
    }

    /// Finds `crate::…` and `super::…` in the arguments of a macro, which are only tokens.
    fn read_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let mut words: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':' && !words.is_empty() => {
                    colons += 1;
                }
                proc_macro2::TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.mention(&words);
                        words.clear();
                    }
                    colons = 0;
                    words.push(word.to_string());
                }
                proc_macro2::TokenTree::Group(group) => {
                    self.mention(&words);
                    words.clear();
                    colons = 0;
                    self.read_tokens(group.stream());
                }
                proc_macro2::TokenTree::Punct(_) | proc_macro2::TokenTree::Literal(_) => {
                    self.mention(&words);
                    words.clear();
                    colons = 0;
                }
            }
        }
        self.mention(&words);
    }

    fn mention(&mut self, words: &[String]) {
        if words.len() > 1
            && let Some(path) = self.full(words)
        {
            self.module.mentioned.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.mention(&words);
        syn::visit::visit_path(self, path);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.read_tokens(called.tokens.clone());
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a crate from pairs of a file name and its text.
    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("there is room");
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().expect("it is in a folder")).expect("there is room");
            std::fs::write(file, text).expect("there is room");
        }
        Tree::read(&folder.path().join("lib.rs")).expect("it can be read").cycles()
    }

    #[test]
    fn siblings_that_import_each_other_are_a_cycle() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B; fn f() -> crate::a::A { crate::a::A }"),
        ]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("in crate, 2 modules: a b"), "{found:?}");
    }

    #[test]
    fn one_way_parents_and_children_are_none() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; use a::A; struct Root;"),
            ("a.rs", "use crate::b::B; use crate::Root; mod inner; use inner::Inner; pub struct A;"),
            ("a/inner.rs", "use super::A; pub struct Inner;"),
            ("b.rs", "//! crate::a::A\npub struct B;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn groups_reexports_and_super_are_followed() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; pub use a::{A, Other as Renamed};"),
            ("a.rs", "use super::b::{self}; pub struct A; pub struct Other; fn f() { b::g(); }"),
            ("b.rs", "use crate::Renamed; pub fn g() {}"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_cycle_deep_in_a_folder_is_found_at_its_level() {
        let found = cycles(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod x; mod y;"),
            ("a/x.rs", "use super::y::Y; pub struct X;"),
            ("a/y.rs", "pub struct Y; mod deep;"),
            ("a/y/deep.rs", "use crate::a::x::X;"),
        ]);
        assert!(found.len() == 1 && found[0].starts_with("in a, 2 modules: x y"), "{found:?}");
    }

    #[test]
    fn macros_count_and_tests_do_not() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B; fn f() { vec![crate::a::A]; }"),
            ("c.rs", "use crate::a::A; pub struct C; #[cfg(test)] mod tests { use crate::c::C; }"),
        ]);
        assert!(found.len() == 1 && found[0].contains("a b"), "{found:?}");
    }
}
