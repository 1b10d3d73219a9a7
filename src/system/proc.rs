//! Parsers for files in `/proc`: load, CPU time, and the memory of the process and the machine.
//!
//! The formats are documented in proc(5). Text that does not match gives `None`, never a wrong
//! number.

use std::io;
use std::path::Path;
use std::time::Duration;

/// The length of a clock tick in `/proc`: the kernel reports 100 ticks per second to programs,
/// regardless of its internal frequency.
const TICK_MS: u64 = 10;

/// The CPU time of all cores since the machine started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostTime {
    pub(super) busy: u64,
    pub(super) total: u64,
}

/// Parses the load average of the last minute, from `/proc/loadavg`.
pub(super) fn load(text: &str) -> Option<f64> {
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    (load.is_finite() && load >= 0.0).then_some(load)
}

/// Parses the CPU time of a process, from its `stat`.
pub(super) fn process_time(text: &str) -> Option<Duration> {
    // The name of the program is in brackets and can contain any characters.
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = user.checked_add(system)?;
    Some(Duration::from_millis(ticks.checked_mul(TICK_MS)?))
}

/// Parses the CPU time of the machine, from `/proc/stat`.
pub(super) fn host_time(text: &str) -> Option<HostTime> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // The fields are: user nice system idle iowait irq softirq steal. Guest time is included in
    // user time. Stolen time counts as busy, because other machines used it.
    let fields: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    let sum = |fields: &[u64]| fields.iter().try_fold(0, |sum: u64, n| sum.checked_add(*n));
    let total = sum(&fields)?;
    let (_, from_idle) = fields
        .split_at_checked(3)
        .filter(|(_, rest)| !rest.is_empty())?;
    let idle = sum(&from_idle[..from_idle.len().min(2)])?;
    let busy = total - idle;
    Some(HostTime { busy, total })
}

/// Parses the number of cores that a process may run on, from its `status`. This list can include
/// cores that the machine does not have, so only cores in the list `online` count, if there is one.
pub(super) fn allowed_cores(text: &str, online: Option<&str>) -> Option<u64> {
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let allowed = ranges(list)?;
    let online = online.and_then(ranges).unwrap_or(vec![(0, u64::MAX)]);
    let mut cores = 0_u64;
    for (first, last) in allowed {
        for (from, to) in &online {
            let (first, last) = (first.max(*from), last.min(*to));
            if first <= last {
                cores = cores.checked_add((last - first).checked_add(1)?)?;
            }
        }
    }
    (cores > 0).then_some(cores)
}

/// Parses a list of cores such as `0-3,8`.
fn ranges(list: &str) -> Option<Vec<(u64, u64)>> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some((first, last))
    };
    list.trim().split(',').map(range).collect()
}

/// Reads the text of a file, with replacement characters for invalid UTF-8: the kernel cuts the
/// name of a program after 15 bytes, even in the middle of a character.
pub(super) fn text(path: &Path) -> io::Result<String> {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the line `name` of `status` or `meminfo`, which is in kB. Returns the number of bytes.
pub(super) fn bytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = rest.strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1_024)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn reads_the_formats_of_the_kernel() {
        assert_eq!(load("0.52 0.58 0.59 3/612 24811\n"), Some(0.52));
        let stat =
            "842 (my (odd) app) S 1 842 842 0 -1 4194560 9043 0 7 0 1250 250 0 0 20 0 9 0 88\n";
        assert_eq!(process_time(stat), Some(Duration::from_secs(15)));
        let stat = "cpu  400 100 300 5000 200 50 30 20 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let expected = HostTime {
            busy: 900,
            total: 6_100,
        };
        assert_eq!(host_time(stat), Some(expected));
        // The format of kernels before 2.6.
        let expected = HostTime { busy: 8, total: 17 };
        assert_eq!(host_time("cpu  5 1 2 9\n"), Some(expected));
        let status = "Name:\tapp\nVmPeak:\t  999999 kB\nVmRSS:\t    2048 kB\nThreads:\t1\n";
        assert_eq!(bytes(status, "VmRSS:"), Some(2 << 20));
        for (list, cores) in [("0", 1), ("0-7", 8), ("0-1,4,6-7", 5)] {
            let status = format!("Name:\tapp\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\n");
            assert_eq!(allowed_cores(&status, None), Some(cores));
        }
    }

    #[test]
    fn malformed_text_is_unknown() {
        for text in ["", "\n", "x", "-1 0 0", "NaN", "inf 1 1 1/1 1"] {
            assert_eq!(load(text), None, "{text:?}");
        }
        for text in [
            "",
            "842",
            "842 (a) S 1 2",
            "1 (a) S 1 1 1 1 1 1 1 1 1 1 x 2 0",
        ] {
            assert_eq!(process_time(text), None, "{text:?}");
        }
        for text in [
            "",
            "cpu0 1 2 3 4",
            "cpu  1 2 3",
            "cpu  1 2 x 4",
            "cpu  1 0 0 18446744073709551615",
        ] {
            assert_eq!(host_time(text), None, "{text:?}");
        }
        for text in [
            "",
            "VmRSS:\t many kB",
            "VmRSS:\t 5 MB",
            "VmRSS: 99999999999999999999 kB",
        ] {
            assert_eq!(bytes(text, "VmRSS:"), None, "{text:?}");
        }
        for list in ["", "a", "3-1", "1-", "0-18446744073709551615", "0,,1"] {
            let status = format!("Cpus_allowed_list:\t{list}");
            assert_eq!(allowed_cores(&status, None), None, "{list:?}");
        }
    }
}
