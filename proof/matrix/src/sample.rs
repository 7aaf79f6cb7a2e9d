//! Fixed sample of the matrix for every test run: all fast cells on SQLite, and each step and each fault at least once.

use crate::table::{Cell, Fault, Store};

/// Steps with the letters of their faults. On SQLite, every cell that takes no longer than a lease.
const SQLITE: &[(usize, &str)] = &[
    (1, "KCZXUMPH"),
    (2, "KAOCZXUH"),
    (3, "KAOCZXU"),
    (4, "KAOCZXUMH"),
    (5, "KOCZXUMH"),
    (6, "KOCZXUMFLR"),
    (7, "KOCZXUMH"),
    (8, "KAOFRZXM"),
    (9, "KAOZXMFLRH"),
    (10, "KOZXU"),
    (11, "KAOFRXM"),
    (12, "OCUM"),
    (13, "AOUM"),
    (14, "KAOCZUM"),
    (15, "KAOFRCZUM"),
    (16, "KAOFRCZU"),
    (17, "KAOCZUM"),
    (18, "KAOZX"),
    (19, "KAOFRZXUM"),
    (20, "KAOZM"),
];
const POSTGRES: &[(usize, &str)] = &[
    (1, "X"),
    (2, "KA"),
    (3, "APX"),
    (4, "KA"),
    (5, "Z"),
    (6, "DH"),
    (7, "MH"),
    (8, "A"),
    (9, "ARX"),
    (10, "KOH"),
    (11, "Z"),
    (13, "A"),
    (14, "A"),
    (15, "Z"),
    (16, "Z"),
    (17, "U"),
    (18, "A"),
];

/// Returns true if the sample has the cell.
pub(crate) fn has(cell: Cell) -> bool {
    let cells = if cell.store == Store::Sqlite { SQLITE } else { POSTGRES };
    cells.iter().any(|(step, letters)| *step == cell.step && letters.contains(cell.fault.letter()))
}

/// Returns true if a cell shows a second effect under a setting that permits one.
pub(crate) fn breaks(cell: Cell) -> bool {
    cell.store == Store::Sqlite && [(5, Fault::Stopped), (6, Fault::Kill)].contains(&(cell.step, cell.fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::cells;

    #[test]
    fn the_sample_has_every_fault_and_every_step() {
        let all: Vec<Cell> = Store::ALL.into_iter().flat_map(cells).filter(|cell| has(*cell)).collect();
        for fault in Fault::ALL {
            assert!(all.iter().any(|cell| cell.fault == fault), "{fault:?}");
        }
        for step in 1..=20 {
            assert!(all.iter().any(|cell| cell.step == step), "{step}");
        }
    }
}
