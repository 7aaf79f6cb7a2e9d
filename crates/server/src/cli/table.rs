//! Table for people, with columns as wide as their longest cells.

use super::{printable, show};

/// Prints a header and rows. The last column has the free text.
pub(super) fn show_table(header: &[&str], rows: &[Vec<String>]) {
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let widths: Vec<usize> = (0..header.len()).map(|column| width(&header, &rows, column)).collect();
    std::iter::once(&header).chain(&rows).for_each(|row| show(line(row, &widths)));
}

fn width(header: &[String], rows: &[Vec<String>], column: usize) -> usize {
    let cells = rows.iter().map(Vec::as_slice).chain([header]).filter_map(|row| row.get(column));
    cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
}

fn line(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
    cells.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_as_its_longest_cell() {
        let owned = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let (header, rows) =
            (owned(&["BY", "REASON"]), [owned(&["token:alice", "ticket 7"]), owned(&["ö", ""])]);
        let widths: Vec<usize> = (0..2).map(|column| width(&header, &rows, column)).collect();
        assert_eq!(widths, [11, 8]);
        assert_eq!(line(&header, &widths), "BY           REASON");
        assert_eq!(line(&rows[0], &widths), "token:alice  ticket 7");
        assert_eq!(line(&rows[1], &widths), "ö");
    }
}
