//! Memory and processor time of a process and its children, read from `/proc`.

use std::path::Path;

use crate::Result;

/// Maximum number of processes of one server.
const MAX_FAMILY: usize = 256;

/// Returns the resident memory in bytes.
pub fn resident(id: u32) -> Result<u64> {
    sum(id, "VmRSS:")
}

/// Returns the peak of resident memory in bytes since the start or since `forget_peak`: the sum of the peaks of all
/// processes.
pub fn peak(id: u32) -> Result<u64> {
    sum(id, "VmHWM:")
}

/// Resets the peak to the present memory.
pub fn forget_peak(id: u32) -> Result<()> {
    for member in family(id) {
        std::fs::write(format!("/proc/{member}/clear_refs"), "5")
            .map_err(|error| format!("the peak of process {member} cannot be set back: {error}"))?;
    }
    Ok(())
}

/// Returns microseconds of processor time so far, in user mode and in the kernel. 0 where that cannot be read.
pub fn processor(id: u32) -> [f64; 2] {
    let mut all = [0.0; 2];
    for member in family(id) {
        let line = std::fs::read_to_string(format!("/proc/{member}/stat")).unwrap_or_default();
        // The program's name is in parentheses, and may have spaces.
        let fields = line.rsplit(") ").next().unwrap_or_default();
        let ticks = |at: usize| fields.split(' ').nth(at).and_then(|ticks| ticks.parse::<f64>().ok());
        for (part, at) in all.iter_mut().zip([11, 12]) {
            // Linux counts in hundredths of a second, independent of its own tick.
            *part += ticks(at).unwrap_or(0.0) * 10_000.0;
        }
    }
    all
}

/// Returns the steal time since boot: hundredths of a second for which the host withheld cores, over all cores. 0
/// without a host, or if the host does not report it.
pub fn stolen() -> u64 {
    stolen_by(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn stolen_by(stat: &str) -> u64 {
    // cpu user nice system idle iowait irq softirq steal
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    all.and_then(|all| all.split_whitespace().nth(7)?.parse().ok()).unwrap_or(0)
}

fn sum(id: u32, name: &str) -> Result<u64> {
    let mut bytes = 0;
    for member in family(id) {
        match std::fs::read_to_string(format!("/proc/{member}/status")) {
            Ok(status) => bytes += kibibytes(&status, name).unwrap_or(0) * 1024,
            Err(error) if member == id => return Err(format!("process {id} is gone: {error}").into()),
            // A child may end at any time.
            Err(_) => {}
        }
    }
    Ok(bytes)
}

/// Returns the process and all its descendants.
fn family(id: u32) -> Vec<u32> {
    let (mut all, mut next) = (vec![id], 0);
    while next < all.len() && all.len() < MAX_FAMILY {
        let threads = Path::new("/proc").join(all[next].to_string()).join("task");
        let threads = std::fs::read_dir(threads).into_iter().flatten().flatten();
        let children =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let children: Vec<String> = children.collect();
        all.extend(
            children.iter().flat_map(|ids| ids.split_whitespace()).filter_map(|id| id.parse::<u32>().ok()),
        );
        next += 1;
    }
    all
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_figure_is_read_by_name() {
        let status = "Name:\tsemel\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(10_240));
        assert_eq!(kibibytes(status, "VmHWM:"), Some(20_480));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }

    #[test]
    fn steal_time_is_read_for_all_cores_together() {
        let stat = "cpu  283882 0 99089 301333 3376 0 33349 3839 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!((stolen_by(stat), stolen_by("")), (3_839, 0));
    }

    #[test]
    fn memory_counts_touched_pages_and_child_processes() {
        let own = std::process::id();
        let before = resident(own).expect("this process is there");
        forget_peak(own).expect("its peak is its own");
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak(own).expect("it is there") >= before + (32 << 20));
        drop(touched);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        assert!(family(own).contains(&child.id()), "{:?}", family(own));
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(resident(child.id()).is_err());
    }

    #[test]
    fn processor_time_grows_while_computing() {
        let own = std::process::id();
        let used = || processor(own).iter().sum::<f64>();
        let before = used();
        // The kernel counts hundredths of a second.
        let is_more = (0..1_000).any(|_| {
            std::hint::black_box(
                (0..1_000_000_u64).fold(0, |sum, number| sum ^ std::hint::black_box(number)),
            );
            used() > before
        });
        assert!(is_more);
    }
}
