//! Counts of calls in intervals, from spans in which each call certainly was.

use crate::{LIMIT, SECOND_NS};

/// A call: readings of the clock in ns before and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Where a limiter's windows of one second begin: at every bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) bucket_ns: u64,
    /// When a bucket begins, if we know.
    pub(crate) phase_ns: Option<u64>,
}

/// How many windows on the grid hold more than the limit, and the most that one
/// holds. Where the phase is not known, those of the kindest.
pub(crate) fn aligned(spans: &[Span], grid: Grid) -> (usize, usize) {
    let Grid {
        bucket_ns,
        phase_ns,
    } = grid;
    if let Some(phase) = phase_ns {
        return windows(spans, phase, bucket_ns);
    }
    let phases = (0..bucket_ns).step_by(1_000_000);
    let counts = phases.map(|phase| windows(spans, phase, bucket_ns));
    counts.min().expect("some phase")
}

/// The most calls in any second, wherever it begins.
pub(crate) fn most_in_any_second(spans: &[Span]) -> usize {
    let starts = spans.iter().map(|span| span.from);
    starts.map(|start| within(spans, start)).max().unwrap_or(0)
}

/// Windows above the limit and the most in one, of those that begin at `phase`
/// and then every `step`.
fn windows(spans: &[Span], phase: u64, step: u64) -> (usize, usize) {
    let first = spans.iter().map(|span| span.from).min().unwrap_or(phase);
    let last = spans.iter().map(|span| span.to).max().unwrap_or(0);
    // The first window is the one that begins a second before, or at zero.
    let skipped = first.saturating_sub(phase + SECOND_NS) / step;
    let counts: Vec<_> = (0..)
        .map(|window| phase + (skipped + window) * step)
        .take_while(|&start| start <= last)
        .map(|start| within(spans, start))
        .collect();
    let above = counts.iter().filter(|&&count| count > LIMIT as usize);
    (above.count(), counts.iter().copied().max().unwrap_or(0))
}

/// Calls that lie wholly in the second from `start` on.
fn within(spans: &[Span], start: u64) -> usize {
    let end = start + SECOND_NS;
    let inside = spans
        .iter()
        .filter(|span| span.from >= start && span.to < end);
    inside.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn grid(bucket_ms: u64, phase_ms: impl Into<Option<u64>>) -> Grid {
        Grid {
            bucket_ns: bucket_ms * MS,
            phase_ns: phase_ms.into().map(|ms| ms * MS),
        }
    }

    /// `count` calls of no length at `ms`.
    fn at(ms: u64, count: usize) -> Vec<Span> {
        let time = ms * MS;
        vec![
            Span {
                from: time,
                to: time
            };
            count
        ]
    }

    #[test]
    fn a_burst_on_both_sides_of_an_edge_is_in_one_second_but_in_no_window() {
        let spans = [at(4_990, 100), at(5_010, 100)].concat();
        assert_eq!(most_in_any_second(&spans), 200);
        assert_eq!(aligned(&spans, grid(1_000, 0)), (0, 100));
        assert_eq!(aligned(&spans, grid(500, 0)), (1, 200));
        assert_eq!(aligned(&spans, grid(1_000, None)), (0, 100));
    }

    #[test]
    fn no_phase_hides_two_hundred_at_one_moment() {
        assert_eq!(aligned(&at(4_000, 200), grid(1_000, None)), (1, 200));
    }

    #[test]
    fn a_second_is_half_open() {
        let spans = [at(2_000, 1), at(3_000, 1)].concat();
        assert_eq!(most_in_any_second(&spans), 1);
    }

    #[test]
    fn a_call_across_an_edge_counts_on_neither_side() {
        let spans = [Span {
            from: 4_999 * MS,
            to: 5_001 * MS,
        }];
        assert_eq!(aligned(&spans, grid(1_000, 0)), (0, 0));
        assert_eq!(most_in_any_second(&spans), 1);
    }

    #[test]
    fn the_phase_moves_the_windows() {
        let spans = [at(4_100, 60), at(5_050, 60)].concat();
        assert_eq!(aligned(&spans, grid(1_000, 0)), (0, 60));
        assert_eq!(aligned(&spans, grid(1_000, 100)), (1, 120));
    }
}
