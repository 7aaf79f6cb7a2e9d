//! Faults of a proxy: their statements, their effects, and their signals to a test.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// Point at which a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Before the statement is forwarded: the server never sees it.
    BeforeSent,
    /// Right after the statement was forwarded: the server may or may not execute it.
    AfterSent,
    /// After the server has answered the statement, and committed it if it was not part of a longer transaction:
    /// it was certainly executed, and the client does not know.
    AfterServerAnswered,
}

/// Number of cuts at each point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Number at [`Cut::BeforeSent`].
    pub before_sent: u64,
    /// Number at [`Cut::AfterSent`].
    pub after_sent: u64,
    /// Number at [`Cut::AfterServerAnswered`].
    pub after_server_answered: u64,
}

impl Cuts {
    /// Returns the number of all cuts.
    pub fn total(&self) -> u64 {
        self.before_sent + self.after_sent + self.after_server_answered
    }
}

/// Selects a statement.
#[derive(Clone, Debug)]
pub struct Matching {
    what: What,
    skipping: usize,
}

#[derive(Clone, Debug)]
enum What {
    Any,
    Commit,
    Contains(String),
}

impl Matching {
    /// Selects any statement.
    pub fn any() -> Matching {
        Matching { what: What::Any, skipping: 0 }
    }

    /// Selects the commit of a transaction: `COMMIT` or `END`.
    pub fn commit() -> Matching {
        Matching { what: What::Commit, skipping: 0 }
    }

    /// Selects a statement that contains this text. Neither case nor the length of white space matters.
    pub fn statement(text: &str) -> Matching {
        Matching { what: What::Contains(plain(text)), skipping: 0 }
    }

    /// Skips the first `count` matches.
    #[must_use]
    pub fn skipping(self, count: usize) -> Matching {
        Matching { skipping: count, ..self }
    }

    fn matches(&self, sql: &str) -> bool {
        let sql = plain(sql);
        match &self.what {
            What::Any => true,
            What::Commit => matches!(
                sql.trim_end_matches(';').trim_end(),
                "commit" | "end" | "commit transaction" | "end transaction" | "commit work" | "end work"
            ),
            What::Contains(text) => sql.contains(text),
        }
    }
}

fn plain(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Fault of a statement.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Cut(Cut, Signal),
    /// The statement is kept from the server until it is released.
    HoldStatement(Signal),
    /// The answer is kept from the client until it is released.
    HoldAnswer(Signal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Armed,
    Struck,
    Released,
}

/// Signals a test that its fault has struck, and a connection that it may continue.
#[derive(Clone, Debug)]
pub(super) struct Signal(watch::Sender<Stage>);

impl Signal {
    pub(super) fn new() -> Signal {
        Signal(watch::Sender::new(Stage::Armed))
    }

    pub(super) fn strike(&self) {
        self.0.send_if_modified(|stage| {
            *stage == Stage::Armed && {
                *stage = Stage::Struck;
                true
            }
        });
    }

    pub(super) async fn released(&self) {
        // The sender is ours, so it is there.
        let _ = self.0.subscribe().wait_for(|stage| *stage == Stage::Released).await;
    }
}

/// A fault that waits for its statement.
#[derive(Debug)]
pub struct Armed(pub(super) Signal);

impl Armed {
    /// Waits until it has struck.
    pub async fn struck(&self) {
        let _ = self.0.0.subscribe().wait_for(|stage| *stage != Stage::Armed).await;
    }
}

/// A held statement or answer. Dropping it releases it, like [`Held::release`].
#[derive(Debug)]
pub struct Held(pub(super) Signal);

impl Held {
    /// Waits until it is held: the statement has come from the client, or its answer from the server.
    pub async fn reached(&self) {
        let _ = self.0.0.subscribe().wait_for(|stage| *stage != Stage::Armed).await;
    }

    /// Releases the statement or answer.
    pub fn release(self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.send_replace(Stage::Released);
    }
}

/// Planned faults of a proxy.
#[derive(Debug, Default)]
pub(super) struct Plan(Mutex<Planned>);

#[derive(Debug, Default)]
struct Planned {
    armed: Vec<(Matching, Fault)>,
    chance: Option<Chance>,
    cuts: Cuts,
}

impl Plan {
    pub(super) fn arm(&self, matching: Matching, fault: Fault) {
        self.with(|planned| planned.armed.push((matching, fault)));
    }

    pub(super) fn cut_randomly(&self, seed: u64, one_in: u32) {
        self.with(|planned| planned.chance = Some(Chance { state: seed, one_in }));
    }

    pub(super) fn clear(&self) {
        self.with(|planned| (planned.armed.clear(), planned.chance = None));
    }

    pub(super) fn cuts(&self) -> Cuts {
        self.with(|planned| planned.cuts)
    }

    pub(super) fn count(&self, cut: Cut) {
        self.with(|planned| match cut {
            Cut::BeforeSent => planned.cuts.before_sent += 1,
            Cut::AfterSent => planned.cuts.after_sent += 1,
            Cut::AfterServerAnswered => planned.cuts.after_server_answered += 1,
        });
    }

    /// Returns the fault of this statement: the first that was armed for it, else one by chance.
    pub(super) fn next(&self, sql: &str) -> Option<Fault> {
        self.with(|planned| {
            let mut struck = None;
            for (index, (matching, _)) in planned.armed.iter_mut().enumerate() {
                if !matching.matches(sql) {
                    continue;
                }
                if matching.skipping == 0 {
                    struck = Some(index);
                    break;
                }
                matching.skipping -= 1;
            }
            match struck {
                Some(index) => Some(planned.armed.remove(index).1),
                None => planned.chance.as_mut()?.draw().map(|cut| Fault::Cut(cut, Signal::new())),
            }
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Planned) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Pseudo-random numbers, the same for the same seed (SplitMix64).
#[derive(Debug)]
struct Chance {
    state: u64,
    one_in: u32,
}

impl Chance {
    fn draw(&mut self) -> Option<Cut> {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        if !(mixed >> 32).is_multiple_of(u64::from(self.one_in.max(1))) {
            return None;
        }
        Some([Cut::BeforeSent, Cut::AfterSent, Cut::AfterServerAnswered][(mixed % 3) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_match_by_text_in_any_case_and_whitespace() {
        let insert = Matching::statement("INSERT INTO records");
        assert!(insert.matches("insert\n    into records (id) values ($1)"));
        assert!(!insert.matches("insert into others select * from records"));
        assert!(Matching::commit().matches("COMMIT;") && Matching::commit().matches(" end "));
        assert!(!Matching::commit().matches("create temporary table t (a int) on commit drop"));
    }

    #[test]
    fn a_fault_strikes_once_and_only_after_those_it_skips() {
        let plan = Plan::default();
        plan.arm(Matching::statement("insert").skipping(1), Fault::Cut(Cut::AfterSent, Signal::new()));
        let strikes = ["insert", "select", "insert", "insert"].map(|sql| plan.next(sql).is_some());
        assert_eq!(strikes, [false, false, true, false]);
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed_and_about_as_frequent_as_asked() {
        let draws = |seed| {
            let mut chance = Chance { state: seed, one_in: 10 };
            (0..10_000).map(|_| chance.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        for cut in [Cut::BeforeSent, Cut::AfterSent, Cut::AfterServerAnswered] {
            let count = draws(7).into_iter().filter(|drawn| *drawn == Some(cut)).count();
            assert!((250..420).contains(&count), "{cut:?}: {count}");
        }
    }
}
