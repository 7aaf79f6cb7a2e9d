//! The matrix as data: the code that must hold for each step and fault.

/// The twenty steps, by number.
pub(crate) const STEPS: [&str; 20] = [
    "parse, authenticate, fingerprint",
    "claim sent",
    "claim committed, answer lost",
    "start, handler runs",
    "external call sent",
    "effect applied",
    "provider's reply received",
    "business transaction in the same database",
    "completion",
    "response bytes go out",
    "outbox: enqueue",
    "outbox: dispatch",
    "outbox: provider's reference recorded",
    "webhook processed",
    "sweep",
    "reap",
    "cache fill",
    "lease renewal",
    "rolling deployment, migration",
    "rotation of the encryption key",
];

/// A fault: one column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    Kill,
    DatabaseKilled,
    AnswerLost,
    Failover,
    DiskFull,
    PoolExhausted,
    Slow,
    ReadOnly,
    ClockJump,
    Stopped,
    ClientGone,
    Duplicate,
    Poison,
    StreamCut,
}

impl Fault {
    pub(crate) const ALL: [Fault; 14] = [
        Fault::Kill,
        Fault::DatabaseKilled,
        Fault::AnswerLost,
        Fault::Failover,
        Fault::DiskFull,
        Fault::PoolExhausted,
        Fault::Slow,
        Fault::ReadOnly,
        Fault::ClockJump,
        Fault::Stopped,
        Fault::ClientGone,
        Fault::Duplicate,
        Fault::Poison,
        Fault::StreamCut,
    ];

    /// Returns the letter of its column.
    pub(crate) fn letter(self) -> char {
        match self {
            Fault::Kill => 'K',
            Fault::DatabaseKilled => 'D',
            Fault::AnswerLost => 'A',
            Fault::Failover => 'O',
            Fault::DiskFull => 'F',
            Fault::PoolExhausted => 'P',
            Fault::Slow => 'L',
            Fault::ReadOnly => 'R',
            Fault::ClockJump => 'C',
            Fault::Stopped => 'Z',
            Fault::ClientGone => 'X',
            Fault::Duplicate => 'U',
            Fault::Poison => 'M',
            Fault::StreamCut => 'H',
        }
    }
}

/// Code of a cell: the rule that must hold. Letters as in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    /// α: nothing happened, and the same key works.
    Nothing,
    /// φ: refused before anything ran.
    FailClosed,
    /// β: one owner; duplicates are told to wait.
    Owned,
    /// ρ: claimed, never started.
    NeverStarted,
    /// A: an ambiguous write, whose answer was lost, is decided before any client is answered.
    Ambiguous,
    /// γ: the outcome is unknown, and the command is not run again.
    Unknown,
    /// δ: done once, and every retry gets that answer.
    Done,
    /// α|δ: nothing or done, never a part.
    Atomic,
    /// ε: delivered again, under the same event id.
    Redelivered,
    /// ζ: a fenced executor changes nothing, and its client gets the outcome in the record.
    Fenced,
    /// ρζ, γζ, εζ: both codes.
    NeverStartedFenced,
    UnknownFenced,
    RedeliveredFenced,
    /// ω: the store lost acknowledged writes.
    Lost,
    /// τ: done, and the response cannot be retained.
    NotRetained,
    /// q: quarantined; other commands proceed.
    Quarantined,
    /// σ: maintenance can be repeated.
    Swept,
    /// κ: the memory cache is correct, or not used.
    Cached,
    /// v: the old and the new version answer the same.
    Versions,
    /// k: sealed records stay readable.
    Keys,
    /// 4xx: refused as a client error.
    Refused,
}

impl Code {
    const LETTERS: [(&'static str, Code); 21] = [
        ("α", Code::Nothing),
        ("φ", Code::FailClosed),
        ("β", Code::Owned),
        ("ρ", Code::NeverStarted),
        ("A", Code::Ambiguous),
        ("γ", Code::Unknown),
        ("δ", Code::Done),
        ("α|δ", Code::Atomic),
        ("ε", Code::Redelivered),
        ("ζ", Code::Fenced),
        ("ρζ", Code::NeverStartedFenced),
        ("γζ", Code::UnknownFenced),
        ("εζ", Code::RedeliveredFenced),
        ("ω", Code::Lost),
        ("τ", Code::NotRetained),
        ("q", Code::Quarantined),
        ("σ", Code::Swept),
        ("κ", Code::Cached),
        ("v", Code::Versions),
        ("k", Code::Keys),
        ("4xx", Code::Refused),
    ];

    /// Returns the letters of the code in the matrix.
    pub(crate) fn letters(self) -> &'static str {
        Code::LETTERS.iter().find(|(_, code)| *code == self).map_or("?", |(letters, _)| letters)
    }

    fn read(letters: &str) -> Option<Code> {
        Code::LETTERS.iter().find(|(known, _)| *known == letters).map(|(_, code)| *code)
    }
}

/// One line for each step, one word for each fault; a dash marks a cell that cannot occur.
const TABLE: [&str; 20] = [
    "α φ – – φ φ φ φ α α α α 4xx α",
    "ρ A A α φ φ A φ β ρζ ρ β – δ",
    "ρ A A α A A A A β ρζ ρ β – –",
    "γ γ A ω γ γ γ γ β γζ δ β γ α",
    "γ γ – ω γ γ γ γ β γζ δ β γ γ",
    "γ γ – ω γ γ γ γ β γζ δ β γ γ",
    "γ γ – ω γ γ γ γ β γζ δ β γ γ",
    "α|δ α|δ A ω α α A α – ζ δ β α –",
    "γ γ A ω γ γ γ γ – ζ δ – τ δ",
    "δ δ – ω δ δ δ δ – δ δ δ – δ",
    "α|δ α|δ A ω α α A α – ζ δ β α –",
    "ε ε – ω ε ε ε ε ε εζ – ε q –",
    "ε ε A ω ε ε ε ε – εζ – ε q –",
    "ε ε A ω ε ε ε ε ε ζ – ε q –",
    "σ σ σ ω σ σ σ σ σ σ – σ q –",
    "σ σ σ σ σ σ σ σ σ σ – σ – –",
    "κ κ κ κ κ κ κ κ κ κ – κ κ –",
    "γ γ A ω γ γ γ γ β ζ δ – – –",
    "v v v v v v v v – v v v v –",
    "k k k k k k k k – k – – k –",
];

/// Kind of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

impl Store {
    pub(crate) const ALL: [Store; 2] = [Store::Sqlite, Store::Postgres];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Store::Sqlite => "sqlite",
            Store::Postgres => "postgres",
        }
    }
}

/// One cell of the matrix on one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    /// Number of the step, from 1 to 20.
    pub(crate) step: usize,
    pub(crate) fault: Fault,
    pub(crate) store: Store,
    pub(crate) code: Code,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {}", self.step, self.fault.letter(), self.store.as_str())
    }
}

/// Returns the code of the matrix for a fault at a step, if it can occur.
pub(crate) fn code(step: usize, fault: Fault) -> Option<Code> {
    let column = Fault::ALL.iter().position(|known| *known == fault)?;
    Code::read(TABLE.get(step.checked_sub(1)?)?.split(' ').nth(column)?)
}

/// Returns every live cell of a store, in the order of the matrix.
pub(crate) fn cells(store: Store) -> Vec<Cell> {
    let every = (1..=STEPS.len()).flat_map(|step| Fault::ALL.map(|fault| (step, fault)));
    every.filter_map(|(step, fault)| Some(Cell { step, fault, store, code: code(step, fault)? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_239_live_cells_and_41_that_cannot_occur() {
        assert_eq!(cells(Store::Sqlite).len(), 239);
        let dashes: usize =
            TABLE.iter().map(|line| line.split(' ').filter(|word| *word == "–").count()).sum();
        assert_eq!(dashes, 20 * 14 - 239);
        assert!(TABLE.iter().all(|line| line.split(' ').count() == 14), "every step meets every fault");
    }

    #[test]
    fn every_word_of_the_matrix_is_a_code_or_a_dash() {
        for word in TABLE.iter().flat_map(|line| line.split(' ')) {
            assert!(word == "–" || Code::read(word).is_some_and(|code| code.letters() == word), "{word}");
        }
    }
}
