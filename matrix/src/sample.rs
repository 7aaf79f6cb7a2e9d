//! A fixed sample of the matrix, for every run of the tests: each step and each fault at least once, and what is fast.

use crate::table::{Cell, Fault, Store};

/// Step and faults, by their letters.
const SQLITE: &[(usize, &str)] = &[
    (1, "KXU"),
    (2, "KAX"),
    (3, "KU"),
    (4, "KX"),
    (5, "KZ"),
    (6, "KRC"),
    (7, "M"),
    (9, "AFM"),
    (10, "KO"),
    (17, "U"),
    (18, "L"),
];
const POSTGRES: &[(usize, &str)] = &[(2, "A"), (3, "P"), (6, "D"), (9, "ZR"), (10, "X")];

/// Whether a cell is in the sample.
pub(crate) fn has(cell: Cell) -> bool {
    let cells = if cell.store == Store::Sqlite { SQLITE } else { POSTGRES };
    cells.iter().any(|(step, letters)| *step == cell.step && letters.contains(cell.fault.letter()))
}

/// Whether a cell shows a second effect where a setting permits one.
pub(crate) fn breaks(cell: Cell) -> bool {
    cell.store == Store::Sqlite && (cell.step, cell.fault) == (6, Fault::Kill)
}
