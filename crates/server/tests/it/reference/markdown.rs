//! Markdown of the generated pages.

/// Returns a table with this head and these rows.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(N));
    let rows = rows.into_iter().map(|row| line(&row)).collect::<String>();
    line(&head.map(str::to_owned)) + &rule + &rows
}

/// Returns a text for a cell: outside of code, marks of HTML and emphasis are escaped.
pub(super) fn cell(text: &str) -> String {
    let escape = |(index, part): (usize, &str)| {
        let is_code = index % 2 == 1;
        if is_code { part.to_owned() } else { part.replace('<', "&lt;").replace('*', "\\*") }
    };
    let parts: Vec<String> = text.split('`').enumerate().map(escape).collect();
    parts.join("`").replace('|', "\\|").replace('\n', " ")
}

/// Returns a text as code, for a cell.
pub(super) fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Returns these texts as code, with commas.
pub(super) fn codes<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

/// Returns the first sentence of a text.
pub(super) fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").map(|end| end + 1);
    end.map_or(text, |end| &text[..end])
}

#[test]
fn a_cell_cannot_break_its_table() {
    assert_eq!(cell("a | b <C> `<d>` {*e}\nf"), "a \\| b &lt;C> `<d>` {\\*e} f");
    assert_eq!(codes(["a", "b|c"]), "`a`, `b\\|c`");
    let shown = table(["x", "y"], [["1".to_owned(), "2".to_owned()]]);
    assert_eq!(shown, "| x | y |\n|---|---|\n| 1 | 2 |\n");
    assert_eq!(first_sentence("One. Two."), "One.");
}
