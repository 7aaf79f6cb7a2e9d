//! `cargo xtask docs`: checks the documentation and builds the book of `docs/` with mdBook, under `target/book`.
//!
//! The check needs no network and no mdBook: every internal link and anchor leads somewhere, every page is in the summary,
//! and no page has more prose than a reader's ten minutes.

mod page;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::databases::{run, target};
use crate::root;
use crate::tools;
use page::Page;

const MDBOOK: (&str, &str) = ("mdbook", "0.5.4");
/// Folders of the book and of its pages.
const BOOK: &str = "docs";
const PAGES: &str = "docs/src";
const SUMMARY: &str = "docs/src/SUMMARY.md";
/// Documents outside of the book whose links are checked too.
const OTHERS: [&str; 8] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "bench/README.md",
    "bench/RESULTS.md",
    "examples/payments/README.md",
];
/// Maximum number of words of prose on a page of the book; tables and code do not count.
const MAX_WORDS: usize = 1500;

/// Checks the documents, then builds the book.
pub(crate) fn run_all() -> Result<(), String> {
    check()?;
    build()
}

/// Checks links, anchors, the summary and the length of pages.
pub(crate) fn check() -> Result<(), String> {
    let documents = Documents::read(&root())?;
    let faults = documents.faults();
    if faults.is_empty() {
        println!("── docs: {} documents, {} links", documents.pages.len(), documents.links());
        return Ok(());
    }
    Err(format!("{} faults in the documentation:\n  {}", faults.len(), faults.join("\n  ")))
}

/// Builds the book with the pinned mdBook, which is installed if it is missing.
pub(crate) fn build() -> Result<(), String> {
    let (name, version) = MDBOOK;
    let program = tools::install(name, version, &["--no-default-features"])?;
    let folder = target()?.join("book");
    let mut mdbook = std::process::Command::new(program);
    mdbook.arg("build").arg("--dest-dir").arg(&folder).arg(root().join(BOOK));
    run(&mut mdbook).map_err(|why| format!("the book cannot be built: {why}"))?;
    println!("── docs: the book is in {}", folder.join("index.html").display());
    Ok(())
}

/// Returns the anchors of a page of the book by its path without its extension, such as `how-to/tls`; `None` if there is no
/// such page.
pub(crate) fn anchors(page: &str) -> Option<Vec<String>> {
    let file = root().join(PAGES).join(page).with_extension("md");
    std::fs::read_to_string(file).ok().map(|text| Page::read(&text).anchors)
}

/// Every document that is checked, by its path from the root.
struct Documents {
    root: PathBuf,
    pages: BTreeMap<PathBuf, Page>,
}

impl Documents {
    fn read(root: &Path) -> Result<Documents, String> {
        let mut names: Vec<PathBuf> = OTHERS.iter().map(PathBuf::from).collect();
        markdown(root, Path::new(PAGES), &mut names)?;
        let page = |name: PathBuf| {
            let text = std::fs::read_to_string(root.join(&name));
            let text = text.map_err(|error| format!("{}: {error}", name.display()))?;
            Ok((name, Page::read(&text)))
        };
        let pages = names.into_iter().map(page).collect::<Result<_, String>>()?;
        Ok(Documents { root: root.to_owned(), pages })
    }

    fn links(&self) -> usize {
        self.pages.values().map(|page| page.links.len()).sum()
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, page) in &self.pages {
            for link in &page.links {
                if let Err(why) = self.follow(name, &link.target) {
                    faults.push(format!("{}:{}: `{}` {why}", name.display(), link.line, link.target));
                }
            }
            if is_of_book(name) && page.words > MAX_WORDS {
                faults.push(format!(
                    "{}: {} words of prose, and {MAX_WORDS} are the most: shorten it, or make two pages of it",
                    name.display(),
                    page.words
                ));
            }
        }
        faults.extend(self.not_in_summary());
        faults
    }

    /// Checks that a link leads somewhere.
    fn follow(&self, from: &Path, target: &str) -> Result<(), String> {
        if is_elsewhere(target) {
            return Ok(());
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let to = resolve(from, path);
        if is_of_book(from) && !to.starts_with(PAGES) {
            return Err("leads out of the book, where its readers have nothing: name the file instead".into());
        }
        let Some(page) = self.pages.get(&to) else {
            let is_there = self.root.join(&to).exists();
            return is_there.then_some(()).ok_or_else(|| "leads to no file".to_owned());
        };
        if anchor.is_empty() || page.anchors.iter().any(|own| own == anchor) {
            return Ok(());
        }
        Err(format!("leads to no heading of {}", to.display()))
    }

    fn not_in_summary(&self) -> Vec<String> {
        let summary = Path::new(SUMMARY);
        let Some(page) = self.pages.get(summary) else { return vec![format!("{SUMMARY} is missing")] };
        let listed: Vec<PathBuf> = page.links.iter().map(|link| resolve(summary, &link.target)).collect();
        let pages = self.pages.keys().filter(|name| is_of_book(name) && *name != summary);
        let missing = pages.filter(|name| !listed.contains(name));
        missing.map(|name| format!("{} is not in {SUMMARY}", name.display())).collect()
    }
}

fn is_of_book(name: &Path) -> bool {
    name.starts_with(PAGES)
}

fn is_elsewhere(target: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme))
}

/// Returns the path from the root that a link in `from` means.
fn resolve(from: &Path, path: &str) -> PathBuf {
    let path = path.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return from.to_owned();
    }
    let mut resolved = from.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => resolved.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    resolved
}

/// Adds the Markdown files below a folder.
fn markdown(root: &Path, folder: &Path, names: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(root.join(folder));
    let entries = entries.map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?;
        let name = folder.join(entry.file_name());
        if root.join(&name).is_dir() {
            markdown(root, &name, names)?;
        } else if name.extension().is_some_and(|extension| extension == "md") {
            names.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the faults of documents from pairs of a name and a text; the summary lists all pages but those
    /// named `lost`.
    fn faults(pages: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("there is room");
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().expect("it is in a folder")).expect("there is room");
            std::fs::write(file, text).expect("there is room");
        };
        let listed = pages.iter().filter_map(|(name, _)| name.strip_prefix("docs/src/"));
        let summary: Vec<_> =
            listed.filter(|name| !name.contains("lost")).map(|name| format!("- [a]({name})")).collect();
        write(SUMMARY, &summary.join("\n"));
        OTHERS.iter().for_each(|name| write(name, ""));
        pages.iter().for_each(|(name, text)| write(name, text));
        Documents::read(folder.path()).expect("they can be read").faults()
    }

    #[test]
    fn links_and_anchors_that_lead_somewhere_are_no_faults() {
        let found = faults(&[
            ("README.md", "[page](docs/src/a.md#two-words) [it](#top) [web](https://example.com)\n\n# Top"),
            ("docs/src/a.md", "# A\n\n## Two `words`\n\n[b](deep/b.md), [here](#a)"),
            ("docs/src/deep/b.md", "[a](../a.md#two-words)"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_faults() {
        let found = faults(&[
            ("README.md", "[gone](docs/gone.md)\n[no heading](docs/src/a.md#b)"),
            ("docs/src/a.md", "# A\n\n[out](../../README.md) and [none](#none)"),
        ]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].starts_with("README.md:1: `docs/gone.md` leads to no file"), "{found:?}");
        assert!(found[1].starts_with("README.md:2: "), "{found:?}");
        assert!(found[2].contains("leads out of the book"), "{found:?}");
        assert!(found[3].ends_with("leads to no heading of docs/src/a.md"), "{found:?}");
    }

    #[test]
    fn a_page_is_in_the_summary_and_short() {
        let long = format!("{}\n\n| {} |\n", "word ".repeat(MAX_WORDS + 1), "cell ".repeat(9000));
        let short = format!("{}\n```text\n{}\n```\n", "word ".repeat(MAX_WORDS), "code ".repeat(9000));
        let found = faults(&[("docs/src/lost.md", &short), ("docs/src/long.md", &long)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("docs/src/long.md: 1501 words"), "{found:?}");
        assert_eq!(found[1], "docs/src/lost.md is not in docs/src/SUMMARY.md");
    }
}
