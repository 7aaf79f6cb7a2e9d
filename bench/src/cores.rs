//! Division of the machine's cores between measured processes.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A part of the machine's cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// All cores, shared by all processes.
    All,
    /// One half: for a client and for the handler that it calls.
    Ends,
    /// The other half: for the process between client and handler.
    Between,
}

impl Cores {
    /// Returns this part of the usable cores. A machine with a single core has no halves.
    fn of(self, usable: &CpuSet) -> CpuSet {
        let numbers: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| usable.is_set(*number)).collect();
        let (ends, between) = numbers.split_at(numbers.len() / 2);
        let chosen = match self {
            Cores::Ends if !ends.is_empty() => ends,
            Cores::Between => between,
            Cores::All | Cores::Ends => &numbers,
        };
        let mut cores = CpuSet::new();
        chosen.iter().for_each(|number| cores.set(*number));
        cores
    }

    /// Returns the number of cores in this part.
    pub fn count(self) -> io::Result<u32> {
        Ok(self.of(&sched_getaffinity(None)?).count())
    }

    /// Runs `step` on these cores alone. Threads and processes started by it keep to them.
    pub fn within<T>(self, step: impl FnOnce() -> T) -> io::Result<T> {
        if self == Cores::All {
            return Ok(step());
        }
        let all = sched_getaffinity(None)?;
        sched_setaffinity(None, &self.of(&all))?;
        let done = step();
        sched_setaffinity(None, &all)?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(cores: &CpuSet) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|number| cores.is_set(*number)).collect()
    }

    #[test]
    fn two_halves_share_no_core_and_one_core_has_no_halves() {
        let mut five = CpuSet::new();
        [1, 2, 5, 6, 9].iter().for_each(|number| five.set(*number));
        assert_eq!(numbers(&Cores::Ends.of(&five)), [1, 2]);
        assert_eq!(numbers(&Cores::Between.of(&five)), [5, 6, 9]);
        assert_eq!(numbers(&Cores::All.of(&five)), [1, 2, 5, 6, 9]);
        let mut one = CpuSet::new();
        one.set(3);
        for cores in [Cores::All, Cores::Ends, Cores::Between] {
            assert_eq!(numbers(&cores.of(&one)), [3], "{cores:?}");
        }
    }

    #[test]
    fn within_restores_the_cores_of_the_thread() {
        let of_now = || numbers(&sched_getaffinity(None).expect("it may be asked"));
        let before = of_now();
        let (within, started) = Cores::Between
            .within(|| (of_now(), std::thread::spawn(of_now).join().expect("it ends")))
            .expect("cores may be chosen");
        assert_eq!((within.len(), started), (before.len().div_ceil(2), within));
        assert_eq!(of_now(), before);
    }
}
