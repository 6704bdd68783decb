//! The runs of one server in one cell, and the comparison of two servers.

/// The figures of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub(crate) requests_per_second: f64,
    pub(crate) p50_ms: f64,
    /// Infinite if no request was answered, like the other percentiles.
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    /// Jain's index over the clients, in a closed loop.
    pub(crate) jain: Option<f64>,
    pub(crate) lost: f64,
    pub(crate) cpu_us: f64,
}

/// The worst of several runs, figure by figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Worst {
    pub(crate) requests_per_second: f64,
    pub(crate) p99_ms: f64,
    pub(crate) jain: Option<f64>,
}

/// Our figures divided by a peer's, for the worst runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratios {
    pub(crate) requests_per_second: f64,
    pub(crate) p99: f64,
    pub(crate) jain: Option<f64>,
}

impl Worst {
    /// The worst of `samples`; `None` if there are no samples.
    pub(crate) fn of(samples: &[Sample]) -> Option<Self> {
        let jain = |sample: &Sample| sample.jain;
        samples.first()?;
        Some(Self {
            requests_per_second: lowest(samples.iter().map(|sample| sample.requests_per_second)),
            p99_ms: highest(samples.iter().map(|sample| sample.p99_ms)),
            jain: samples.iter().filter_map(jain).min_by(f64::total_cmp),
        })
    }

    /// The best of several servers, figure by figure; `None` if there are no servers.
    pub(crate) fn best(servers: &[Self]) -> Option<Self> {
        servers.first()?;
        Some(Self {
            requests_per_second: highest(servers.iter().map(|worst| worst.requests_per_second)),
            p99_ms: lowest(servers.iter().map(|worst| worst.p99_ms)),
            jain: servers.iter().filter_map(|worst| worst.jain).max_by(f64::total_cmp),
        })
    }
}

impl Ratios {
    pub(crate) fn new(ours: Worst, theirs: Worst) -> Self {
        Self {
            requests_per_second: ours.requests_per_second / theirs.requests_per_second,
            p99: ours.p99_ms / theirs.p99_ms,
            jain: ours.jain.zip(theirs.jain).map(|(ours, theirs)| ours / theirs),
        }
    }
}

/// One figure over all cells: the worst, with the cell's name, and the median.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    pub(crate) worst: f64,
    pub(crate) cell: String,
    pub(crate) median: f64,
}

impl Spread {
    /// The spread over `cells`, each a name and a figure. The worst figure is the highest if `high_is_bad`, as for
    /// times, and otherwise the lowest. `None` if there are no cells.
    pub(crate) fn new(mut cells: Vec<(String, f64)>, high_is_bad: bool) -> Option<Self> {
        cells.retain(|(_, figure)| !figure.is_nan());
        cells.sort_by(|one, other| one.1.total_cmp(&other.1));
        let median = median(&cells)?;
        let (cell, worst) = if high_is_bad { cells.pop()? } else { cells.swap_remove(0) };
        Some(Self { worst, cell, median })
    }
}

fn median(sorted: &[(String, f64)]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle].1),
        _ => Some(f64::midpoint(sorted[middle - 1].1, sorted[middle].1)),
    }
}

fn lowest(figures: impl Iterator<Item = f64>) -> f64 {
    figures.fold(f64::INFINITY, f64::min)
}

fn highest(figures: impl Iterator<Item = f64>) -> f64 {
    figures.fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests_per_second: f64, p99_ms: f64, jain: Option<f64>) -> Sample {
        let (p50_ms, p999_ms, lost, cpu_us) = (1.0, 1.0, 0.0, 1.0);
        Sample { requests_per_second, p50_ms, p99_ms, p999_ms, jain, lost, cpu_us }
    }

    #[test]
    fn the_worst_run_counts_figure_by_figure() {
        let runs = [sample(90.0, 20.0, Some(0.9)), sample(100.0, 30.0, Some(0.8))];
        let expected = Worst { requests_per_second: 90.0, p99_ms: 30.0, jain: Some(0.8) };
        assert_eq!(Worst::of(&runs), Some(expected));
        assert_eq!(Worst::of(&[sample(1.0, 2.0, None)]).unwrap().jain, None);
        assert_eq!(Worst::of(&[]), None);
    }

    #[test]
    fn the_best_peer_is_the_best_of_each_figure() {
        let peer = |requests_per_second, p99_ms, jain| Worst { requests_per_second, p99_ms, jain };
        let best = Worst::best(&[peer(10.0, 5.0, Some(0.7)), peer(20.0, 9.0, Some(0.9))]);
        assert_eq!(best, Some(peer(20.0, 5.0, Some(0.9))));
        assert_eq!(Worst::best(&[]), None);
    }

    #[test]
    fn ratios_are_ours_by_theirs() {
        let ours = Worst { requests_per_second: 150.0, p99_ms: 30.0, jain: Some(0.9) };
        let theirs = Worst { requests_per_second: 100.0, p99_ms: 20.0, jain: Some(0.6) };
        let ratios = Ratios::new(ours, theirs);
        assert_eq!((ratios.requests_per_second, ratios.p99), (1.5, 1.5));
        assert!((ratios.jain.unwrap() - 1.5).abs() < 1e-12);
        assert_eq!(Ratios::new(ours, Worst { jain: None, ..theirs }).jain, None);
    }

    #[test]
    fn the_worst_cell_is_named_beside_the_median() {
        let cells = || vec![("a".to_owned(), 1.2), ("b".into(), 0.8), ("c".into(), 1.0)];
        let spread = |worst, cell: &str| Spread { worst, cell: cell.into(), median: 1.0 };
        assert_eq!(Spread::new(cells(), true), Some(spread(1.2, "a")));
        assert_eq!(Spread::new(cells(), false), Some(spread(0.8, "b")));
        let even = Spread::new(vec![("a".into(), 1.0), ("b".into(), 2.0)], true).unwrap();
        assert_eq!(even.median, 1.5);
        assert_eq!(Spread::new(vec![("a".into(), f64::NAN)], true), None);
    }
}
