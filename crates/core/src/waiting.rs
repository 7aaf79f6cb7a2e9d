//! Commands that wait for a worker: the store's list of them, and a worker's walk through that list.
//!
//! The list is ordered by tenant, then by readiness, the longest ready first. [`WaitingSearch`] takes tenants
//! in turns, so that neither one tenant's backlog nor commands that cannot run here hold up others. It is
//! pure: it names the page to read next, and is told about its commands.

use std::collections::HashMap;
use std::time::Duration;

use crate::record::Record;
use crate::request::StoredRequest;
use crate::scope::RecordId;
use crate::state::State;
use crate::time::Timestamp;

/// Maximum number of pages per pass of a search.
const MAX_PAGES: usize = 32;

/// Maximum number of pages of one tenant in a row while none of its commands fits.
const MAX_DIGS: usize = 4;

/// Maximum number of commands on a page, unless more are wanted.
const MAX_PAGE: usize = 64;

/// Maximum number of tenants whose passed-over commands a search remembers.
const MAX_TENANTS: usize = 4096;

/// Age after which no new command can appear before a ready one: clocks are read before transactions commit.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// Position of a waiting command in the list: tenants in the order of the store, then the longest ready
/// first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPlace {
    /// The tenant.
    pub tenant: String,
    /// Time from which on the command may be started.
    pub ready_at: Timestamp,
    /// Id of the record, which orders commands of one moment.
    pub id: RecordId,
}

impl WaitingPlace {
    /// Returns the position behind all commands of a tenant.
    pub fn end_of(tenant: &str) -> WaitingPlace {
        let id = RecordId::from_bytes([u8::MAX; 32]);
        WaitingPlace { tenant: tenant.to_owned(), ready_at: Timestamp::MAX, id }
    }

    /// Returns true if this position is behind `other` of the same tenant; only the store can compare
    /// tenants.
    fn is_behind(&self, other: &WaitingPlace) -> bool {
        self.tenant == other.tenant
            && (self.ready_at, self.id.as_bytes()) > (other.ready_at, other.id.as_bytes())
    }
}

/// Selects a page of the commands that a worker can start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingFilter {
    /// True for commands with phases, false for those without.
    pub phased: bool,
    /// Operations of the commands; `None` matches any.
    pub operations: Option<Vec<String>>,
    /// Last position of the previous page: only commands behind it.
    pub after: Option<WaitingPlace>,
    /// Maximum number of commands of one tenant before the next tenant's.
    pub share: usize,
    /// Maximum number of commands.
    pub limit: usize,
}

impl Default for WaitingFilter {
    fn default() -> WaitingFilter {
        WaitingFilter { phased: false, operations: None, after: None, share: 100, limit: 100 }
    }
}

/// A page of waiting commands.
#[derive(Clone, Debug)]
pub struct WaitingPage {
    /// Commands in the order of the list, without those whose records are unreadable.
    pub found: Vec<Waiting>,
    /// Position of the next page; `None` at the end of the list. A page may be short, or empty, before the
    /// end. A tenant's commands beyond its share are on no later page, unless this one ends with them.
    pub next: Option<WaitingPlace>,
    /// The store's time.
    pub now: Timestamp,
}

impl WaitingPage {
    /// Returns the page of `filter` from all commands, for stores that have them in memory.
    pub fn select(mut all: Vec<Waiting>, filter: &WaitingFilter, now: Timestamp) -> WaitingPage {
        let key = |place: &WaitingPlace| (place.tenant.clone(), place.ready_at, place.id);
        all.retain(|waiting| filter.after.as_ref().is_none_or(|after| key(&waiting.place()) > key(after)));
        all.sort_by_cached_key(|waiting| key(&waiting.place()));
        let mut found: Vec<Waiting> = Vec::new();
        for of_tenant in
            all.chunk_by(|one, other| one.record.principal.tenant() == other.record.principal.tenant())
        {
            found.extend(of_tenant.iter().take(filter.share).cloned());
        }
        let is_full = found.len() >= filter.limit;
        found.truncate(filter.limit);
        let next = found.last().filter(|_| is_full).map(Waiting::place);
        WaitingPage { found, next, now }
    }
}

/// A command that waits for a worker.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Record of the command.
    pub record: Record,
    /// The stored request or input that a worker needs to carry it out.
    pub request: StoredRequest,
}

impl Waiting {
    /// Returns the command's position in the list.
    pub fn place(&self) -> WaitingPlace {
        let ready_at = match self.record.head.state {
            State::Claimed { ready_at, .. } => ready_at,
            // A store returns none of these; their position is behind all others, so that they delay no
            // command.
            State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => Timestamp::MAX,
        };
        WaitingPlace { tenant: self.record.principal.tenant().to_owned(), ready_at, id: self.record.id }
    }
}

/// A walk through the list of waiting commands, tenant by tenant, that continues where its last pass ended.
///
/// ```text
/// search.begin(places);
/// while let Some(filter) = search.page() {
///     let page = store.waiting(&filter).await?;
///     for waiting in page.found {
///         let place = waiting.place();
///         if search.wants(&place) { /* then took, pass_over, leave, or nothing if it is in hand already */ }
///     }
///     search.turn(page.next);
/// }
/// ```
#[derive(Debug)]
pub struct WaitingSearch {
    phased: bool,
    operations: Option<Vec<String>>,
    at: Option<WaitingPlace>,
    /// Last command of each tenant that cannot run here.
    passed: HashMap<String, WaitingPlace>,
    pass: SearchPass,
}

/// One pass of a search.
#[derive(Debug, Default)]
struct SearchPass {
    wanted: usize,
    /// Maximum number of commands of one tenant in one visit.
    share: usize,
    limit: usize,
    pages: usize,
    /// True if this pass has begun at the front of the list, or come back to it.
    from_front: bool,
    /// True if, since the front, a command was taken or a tenant left with commands that were not looked at.
    unfinished: bool,
    /// True if a command was taken, or passed over for the first time.
    progress: bool,
    over: bool,
    exhausted: bool,
    /// Last command of each tenant in this pass.
    seen: HashMap<String, WaitingPlace>,
    visit: Visit,
    /// Position to continue from, whatever else is on the page.
    jump: Option<WaitingPlace>,
}

/// The visit to one tenant.
#[derive(Debug, Default)]
struct Visit {
    tenant: Option<String>,
    taken: usize,
    digs: usize,
    /// Number of commands on the current page, and the last of them.
    on_page: usize,
    last: Option<WaitingPlace>,
}

impl WaitingSearch {
    /// Returns a search for commands with phases, or without, of these operations, or of any.
    pub fn new(phased: bool, operations: Option<Vec<String>>) -> WaitingSearch {
        WaitingSearch { phased, operations, at: None, passed: HashMap::new(), pass: SearchPass::default() }
    }

    /// Begins a pass for at most `wanted` commands. One tenant gets half of them at first, and the rest if no
    /// other tenant wants it.
    pub fn begin(&mut self, wanted: usize) {
        self.pass = SearchPass {
            wanted,
            share: wanted.div_ceil(2),
            limit: wanted,
            pages: MAX_PAGES,
            from_front: self.at.is_none(),
            over: wanted == 0,
            ..SearchPass::default()
        };
    }

    /// Returns the page to read next; `None` once the pass is over.
    pub fn page(&mut self) -> Option<WaitingFilter> {
        let pass = &mut self.pass;
        if pass.over {
            return None;
        }
        (pass.visit.on_page, pass.visit.last, pass.jump) = (0, None, None);
        Some(WaitingFilter {
            phased: self.phased,
            operations: self.operations.clone(),
            after: self.at.clone(),
            share: pass.share_of_page(),
            limit: pass.limit,
        })
    }

    /// Returns true if this command, the next on the page, should be looked at. Commands that were passed
    /// over before should not.
    pub fn wants(&mut self, place: &WaitingPlace) -> bool {
        let pass = &mut self.pass;
        if pass.wanted == 0 || pass.jump.is_some() {
            return false;
        }
        if pass.visit.tenant.as_ref() != Some(&place.tenant) {
            if pass.is_to_dig() {
                pass.jump = pass.visit.last.clone();
                return false;
            }
            pass.visit = Visit { tenant: Some(place.tenant.clone()), ..Visit::default() };
        }
        if pass.visit.taken >= pass.share {
            pass.jump = Some(WaitingPlace::end_of(&place.tenant));
            return false;
        }
        pass.visit.on_page += 1;
        pass.visit.last = Some(place.clone());
        let behind = [self.passed.get(&place.tenant), pass.seen.get(&place.tenant)];
        if let Some(behind) = behind.into_iter().flatten().find(|behind| !place.is_behind(behind)) {
            pass.jump = Some(behind.clone());
            return false;
        }
        pass.seen.insert(place.tenant.clone(), place.clone());
        true
    }

    /// Marks the command as taken: it runs here.
    pub fn took(&mut self) {
        let pass = &mut self.pass;
        pass.wanted -= 1;
        pass.visit.taken += 1;
        (pass.unfinished, pass.progress) = (true, true);
    }

    /// Marks the command as one that cannot run here. Unless it is new, it and all before it are skipped
    /// until [`forget`](Self::forget). `now` is [`WaitingPage::now`].
    pub fn pass_over(&mut self, place: &WaitingPlace, now: Timestamp) {
        if now.since(place.ready_at) < SETTLED_AFTER {
            return;
        }
        if self.passed.len() < MAX_TENANTS || self.passed.contains_key(&place.tenant) {
            self.passed.insert(place.tenant.clone(), place.clone());
            self.pass.progress = true;
        }
    }

    /// Marks the command as one that cannot run now: the pass continues with the next tenant.
    pub fn leave(&mut self, place: &WaitingPlace) {
        self.pass.jump = Some(WaitingPlace::end_of(&place.tenant));
    }

    /// Ends the page; `next` is [`WaitingPage::next`].
    pub fn turn(&mut self, next: Option<WaitingPlace>) {
        let pass = &mut self.pass;
        let in_vain = pass.visit.taken == 0;
        let ends = pass.jump.is_none() && next.is_none() && !pass.is_to_dig();
        self.at = pass.go_on(next);
        if in_vain {
            pass.limit = (pass.limit * 2).min(MAX_PAGE.max(pass.limit));
        }
        pass.pages -= 1;
        pass.over = pass.wanted == 0 || pass.pages == 0;
        if ends {
            pass.exhausted = pass.from_front && !pass.unfinished;
            pass.over |= pass.exhausted;
            (pass.from_front, pass.unfinished) = (true, false);
        }
    }

    /// Returns true if the next pass may find more at once. Otherwise the whole list was read, and the rest
    /// does not fit.
    pub fn has_more(&self) -> bool {
        !self.pass.exhausted && self.pass.progress
    }

    /// Looks again at commands that were passed over: one of them may fit by now.
    pub fn forget(&mut self) {
        self.passed.clear();
    }
}

impl SearchPass {
    fn share_of_page(&self) -> usize {
        if self.visit.digs > 0 { self.limit } else { self.share }
    }

    fn has_used_its_share(&self) -> bool {
        self.visit.on_page >= self.share_of_page()
    }

    /// Returns true if the current tenant has used its share of the page, and none of it fitted.
    fn is_to_dig(&self) -> bool {
        self.visit.taken == 0 && self.has_used_its_share()
    }

    /// Returns the position of the next page.
    fn go_on(&mut self, next: Option<WaitingPlace>) -> Option<WaitingPlace> {
        if self.wanted == 0 {
            return self.visit.tenant.take().as_deref().map(WaitingPlace::end_of).or(next);
        }
        let goes_on = self.has_used_its_share() && (next.is_some() || self.visit.taken == 0);
        let last = self.visit.last.clone().filter(|_| goes_on);
        let place = self.jump.take().or(last).or(next);
        let at_hand = place.as_ref().filter(|place| Some(&place.tenant) == self.visit.tenant.as_ref());
        let Some(at_hand) = at_hand else {
            self.visit = Visit::default();
            return place;
        };
        let dug = self.visit.taken == 0 && self.visit.digs >= MAX_DIGS;
        self.unfinished |= dug;
        let end = WaitingPlace::end_of(&at_hand.tenant);
        if dug || self.visit.taken >= self.share || *at_hand == end {
            self.visit = Visit::default();
            return Some(end);
        }
        self.visit.digs += usize::from(self.visit.taken == 0);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of a store's list: tenant, number, and true if the command fits.
    type Listed = (&'static str, i64, bool);

    fn place(&(tenant, number, _): &Listed) -> WaitingPlace {
        let ready_at = Timestamp::from_millis(number);
        WaitingPlace { tenant: tenant.to_owned(), ready_at, id: RecordId::from_bytes([0; 32]) }
    }

    /// Answers like a store: at most a share of each tenant, then the next tenant's.
    fn page(list: &[Listed], filter: &WaitingFilter) -> (Vec<Listed>, Option<WaitingPlace>) {
        let behind = |listed: &&Listed| {
            filter
                .after
                .as_ref()
                .is_none_or(|after| listed.0 > after.tenant.as_str() || place(listed).is_behind(after))
        };
        let behind: Vec<Listed> = list.iter().filter(behind).copied().collect();
        let shares =
            behind.chunk_by(|one, other| one.0 == other.0).flat_map(|of| of.iter().take(filter.share));
        let found: Vec<Listed> = shares.copied().take(filter.limit).collect();
        let next = found.last().filter(|_| found.len() == filter.limit).map(place);
        (found, next)
    }

    struct Walk {
        search: WaitingSearch,
        list: Vec<Listed>,
        pages: usize,
        judged: usize,
    }

    impl Walk {
        fn new(list: Vec<Listed>) -> Walk {
            Walk { search: WaitingSearch::new(false, None), list, pages: 0, judged: 0 }
        }

        /// Runs one pass. Taken commands leave the list.
        fn pass(&mut self, wanted: usize) -> Vec<(&'static str, i64)> {
            let mut taken = Vec::new();
            self.search.begin(wanted);
            while let Some(filter) = self.search.page() {
                self.pages += 1;
                let (found, next) = page(&self.list, &filter);
                for listed in found {
                    let place = place(&listed);
                    if !self.search.wants(&place) {
                        continue;
                    }
                    self.judged += 1;
                    if listed.2 {
                        self.search.took();
                        taken.push((listed.0, listed.1));
                    } else {
                        self.search.pass_over(&place, Timestamp::from_millis(1_000_000));
                    }
                }
                self.search.turn(next);
            }
            self.list.retain(|listed| !taken.contains(&(listed.0, listed.1)));
            taken
        }
    }

    fn of(tenant: &'static str, numbers: std::ops::Range<i64>, fits: bool) -> impl Iterator<Item = Listed> {
        numbers.map(move |number| (tenant, number, fits))
    }

    #[test]
    fn a_flood_of_one_tenant_leaves_room_for_others() {
        let mut walk = Walk::new(of("a", 0..1000, true).chain(of("b", 5000..5001, true)).collect());
        let taken = walk.pass(16);
        assert_eq!(taken.len(), 16, "every place is used: {taken:?}");
        assert!(taken.contains(&("b", 5000)), "{taken:?}");
        assert!(walk.search.has_more());
    }

    #[test]
    fn places_that_become_free_one_by_one_go_to_tenants_in_turn() {
        let list = of("a", 0..1000, true).chain(of("b", 5000..5010, true)).chain(of("c", 6000..6001, true));
        let mut walk = Walk::new(list.collect());
        let turns: Vec<_> = (0..6).flat_map(|_| walk.pass(1)).map(|(tenant, _)| tenant).collect();
        assert_eq!(turns, ["a", "b", "c", "a", "b", "a"]);
    }

    #[test]
    fn commands_of_one_tenant_alone_use_every_place_the_longest_ready_first() {
        let mut walk = Walk::new(of("a", 0..40, true).collect());
        assert_eq!(walk.pass(16), (0..16).map(|number| ("a", number)).collect::<Vec<_>>());
        assert_eq!(walk.pass(100).len(), 24);
        assert!(walk.pass(16).is_empty() && !walk.search.has_more());
    }

    #[test]
    fn a_search_finds_commands_behind_10000_others_that_do_not_fit() {
        let unfit = of("a", 0..10_000, false).chain(of("a", 20_000..20_001, true));
        let mut walk = Walk::new(unfit.chain(of("b", 30_000..30_001, true)).collect());
        assert_eq!(walk.pass(1), [("b", 30_000)], "after a few pages of the first tenant's");
        assert!(walk.pages <= 2 * MAX_DIGS, "{}", walk.pages);
        let passes = (0..100).position(|_| walk.pass(1) == [("a", 20_000)]);
        assert!(passes.is_some_and(|passes| passes < 50), "{passes:?}");
        assert_eq!(walk.judged, 10_002, "each was looked at once");
        while walk.search.has_more() {
            assert!(walk.pass(1).is_empty());
        }
        walk.list.push(("a", 40_000, true));
        let pages = walk.pages;
        assert_eq!(walk.pass(1), [("a", 40_000)]);
        assert!(
            walk.pages - pages <= 3,
            "a new one is found behind those passed over: {}",
            walk.pages - pages
        );
        walk.search.forget();
        walk.list[0].2 = true;
        assert_eq!(walk.pass(1), [("a", 0)], "one that fits by now is found again");
    }

    #[test]
    fn a_search_finds_a_new_command_ready_before_skipped_ones() {
        let even = of("a", 999_000..999_100, false).filter(|listed| listed.1 % 2 == 0);
        let mut walk = Walk::new(even.collect());
        assert!(walk.pass(1).is_empty() && !walk.search.has_more(), "none of them fits");
        walk.list.insert(25, ("a", 999_049, true));
        assert_eq!(walk.pass(1), [("a", 999_049)], "it became ready before some that were passed over");
    }

    #[test]
    fn a_pass_is_bounded_and_ends() {
        let names: Vec<&'static str> = vec!["a", "b", "c", "d", "e"];
        let list = names.iter().flat_map(|tenant| of(tenant, 0..5000, false)).collect();
        let mut walk = Walk::new(list);
        let mut passes = 0;
        loop {
            let pages = walk.pages;
            assert!(walk.pass(4).is_empty());
            assert!(walk.pages - pages <= MAX_PAGES);
            passes += 1;
            assert!(passes < 1000, "it ends");
            if !walk.search.has_more() {
                break;
            }
        }
        assert_eq!(walk.judged, 25_000);
    }

    #[test]
    fn each_search_pass_returns_to_a_command_that_could_not_run() {
        let mut search = WaitingSearch::new(true, Some(vec!["x".into()]));
        for _ in 0..3 {
            search.begin(1);
            let filter = search.page().expect("it begins");
            assert_eq!((filter.phased, filter.after, filter.limit), (true, None, 1));
            let place = place(&("a", 1, true));
            assert!(search.wants(&place));
            search.leave(&place);
            search.turn(None);
            assert!(search.page().is_some_and(|filter| filter.after == Some(WaitingPlace::end_of("a"))));
            search.turn(None);
            assert!(search.page().is_none() && !search.has_more());
        }
        search.begin(0);
        assert!(search.page().is_none());
    }

    #[test]
    fn commands_that_do_not_fit_cost_their_tenant_neither_its_turn_nor_pages() {
        let mut walk = Walk::new(vec![("a", 0, false), ("a", 1, true), ("b", 0, true)]);
        assert_eq!(walk.pass(2), [("a", 1), ("b", 0)], "the rest of the first tenant's comes first");
        assert_eq!(walk.pages, 2);

        let mut walk = Walk::new(vec![("a", 0, false), ("a", 1, true)]);
        walk.search.begin(2);
        let filter = walk.search.page().expect("it begins");
        assert_eq!(page(&walk.list, &filter), (vec![walk.list[0]], None), "its share of the page");
        let passed = place(&walk.list[0]);
        assert!(walk.search.wants(&passed));
        walk.search.turn(None);
        let next = walk.search.page().expect("the rest of its commands was not read yet");
        assert_eq!((next.after, next.share), (Some(passed), next.limit));

        let mut walk = Walk::new(vec![("a", 0, false), ("b", 0, true), ("b", 1, true), ("c", 0, true)]);
        assert_eq!(walk.pass(3), [("b", 0), ("b", 1), ("c", 0)]);
        assert_eq!(walk.pages, 2, "a share that is not used up has nothing behind it");
    }

    #[test]
    fn a_search_moves_on_once_a_tenant_has_its_share() {
        let list = [("a", 0, true), ("a", 1, false), ("b", 0, true), ("b", 1, true), ("b", 2, true)];
        let mut walk = Walk::new([list.as_slice(), &[("c", 0, true)]].concat());
        assert_eq!(walk.pass(4), [("a", 0), ("b", 0), ("b", 1), ("c", 0)]);
        assert_eq!(walk.pages, 2);
    }

    #[test]
    fn pages_grow_while_nothing_fits() {
        let mut search = WaitingSearch::new(false, None);
        search.begin(4);
        for (number, size) in [(4, 2), (8, 8), (16, 16), (32, 32), (64, 64)].into_iter().enumerate() {
            let filter = search.page().expect("it goes on");
            assert_eq!((filter.limit, filter.share), size, "{number}");
            let place = place(&("a", number as i64, false));
            assert!(search.wants(&place));
            search.turn(Some(place));
        }
    }

    #[test]
    fn a_list_that_was_read_to_its_end_has_no_more() {
        let mut walk = Walk::new(vec![("a", 0, false)]);
        assert!(walk.pass(1).is_empty() && !walk.search.has_more());
    }

    #[test]
    fn a_search_skips_only_older_commands_of_a_bounded_number_of_tenants() {
        let tenant = |number: usize| WaitingPlace {
            tenant: format!("tenant {number}"),
            ready_at: Timestamp::from_millis(0),
            id: RecordId::from_bytes([0; 32]),
        };
        let settled = Timestamp::from_millis(0).plus(SETTLED_AFTER);
        let mut search = WaitingSearch::new(false, None);
        (0..=MAX_TENANTS).for_each(|number| search.pass_over(&tenant(number), settled));
        let mut wants = |number| {
            search.begin(1);
            search.wants(&tenant(number))
        };
        assert!(!wants(0) && !wants(MAX_TENANTS - 1));
        assert!(wants(MAX_TENANTS), "no more of them are remembered");
        let mut search = WaitingSearch::new(false, None);
        search.pass_over(&tenant(0), Timestamp::from_millis(settled.as_millis() - 1));
        search.begin(1);
        assert!(search.wants(&tenant(0)), "it is too new");
    }
}
