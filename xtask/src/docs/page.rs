//! One Markdown document, as far as `cargo xtask docs` reads it: words of prose, links, anchors.

use std::collections::BTreeMap;

/// The facts about one document.
#[derive(Default)]
pub(super) struct Page {
    /// Words outside of tables, code blocks and comments.
    pub(super) words: usize,
    pub(super) links: Vec<Link>,
    /// The ids of its headings, as mdBook and GitHub make them.
    pub(super) anchors: Vec<String>,
}

/// The target of a link, and its line.
#[derive(Debug, PartialEq)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

impl Page {
    pub(super) fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        let (mut fence, mut comment) = (None, false);
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            if let Some(open) = fence {
                fence = (!trimmed.starts_with(open)).then_some(open);
                continue;
            }
            if !comment && let Some(open) = ["```", "~~~"].into_iter().find(|open| trimmed.starts_with(open))
            {
                fence = Some(open);
                continue;
            }
            let line = without_comments(line, &mut comment);
            if line.starts_with('#') && line.trim_start_matches('#').starts_with(' ') {
                page.add_heading(line.trim_start_matches('#').trim(), &mut used);
            }
            page.add_links(&line, number + 1);
            if !trimmed.starts_with('|') && definition(&line).is_none() {
                page.words +=
                    line.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
            }
        }
        page
    }

    fn add_heading(&mut self, heading: &str, used: &mut BTreeMap<String, usize>) {
        let id = anchor(heading);
        let before = used.entry(id.clone()).or_default();
        self.anchors.push(if *before == 0 { id } else { format!("{id}-{before}") });
        *before += 1;
    }

    fn add_links(&mut self, line: &str, number: usize) {
        let line = without_code(line);
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let targets = inline.chain(definition(&line)).filter(|target| !target.is_empty());
        self.links.extend(targets.map(|target| Link { line: number, target: target.to_owned() }));
    }
}

/// Returns the target of a line such as `[label]: target`.
fn definition(line: &str) -> Option<&str> {
    let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
    (!label.contains(']')).then(|| target.trim())
}

/// Returns the line without comments; `inside` is true if one was open before it, and is updated for after
/// it.
fn without_comments(line: &str, inside: &mut bool) -> String {
    let (mut rest, mut kept) = (line, String::new());
    loop {
        let mark = if *inside { "-->" } else { "<!--" };
        match rest.split_once(mark) {
            Some((before, after)) => {
                kept.push_str(if *inside { "" } else { before });
                (*inside, rest) = (!*inside, after);
            }
            None => {
                kept.push_str(if *inside { "" } else { rest });
                return kept;
            }
        }
    }
}

/// Returns the line without the text in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Returns the id of a heading.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // Only the text of a link counts.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = text.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_become_anchors() {
        let page = Page::read(
            "# The `[tls]` table\n## Who, and why?\n## Who, and why?\n```\n# no heading\n```\n#hash",
        );
        assert_eq!(page.anchors, ["the-tls-table", "who-and-why", "who-and-why-1"]);
        assert_eq!(anchor("See [the page](x.md#y) now"), "see-the-page-now");
    }

    #[test]
    fn prose_is_counted_without_tables_code_and_comments() {
        let text = "# Two words\n\n- one — two\n<!-- not\nthis --> but this\n\n| a | b |\n\n```sh\nls\n```\n[a]: b.md\n";
        assert_eq!(Page::read(text).words, 2 + 2 + 2);
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let page = Page::read("a [`b`](c.md#d) `[x](y)` [e](f.md)\n\n| [g](h.md) |\n\n[i]: j.md\n");
        let targets: Vec<_> = page.links.iter().map(|link| (link.line, link.target.as_str())).collect();
        assert_eq!(targets, [(1, "c.md#d"), (1, "f.md"), (3, "h.md"), (5, "j.md")]);
    }
}
