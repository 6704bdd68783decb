//! Latencies in bins of about equal width on a logarithmic scale.

use thruway_load::Histogram;

/// The steps of a decade, in percent of its start: a coarse and a fine series.
const FEW: [u64; 3] = [100, 200, 500];
const MANY: [u64; 10] = [100, 125, 160, 200, 250, 320, 400, 500, 630, 800];
/// The number of bins at which the coarse steps suffice.
const BINS_ENOUGH: usize = 7;

/// The requests whose latency is below `to_ns`, and at least `from_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bin {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) count: u64,
}

/// Returns the bins from the shortest latency to the longest.
pub(super) fn bins(histogram: &Histogram) -> Vec<Bin> {
    let few = binned(histogram, &FEW);
    if few.len() >= BINS_ENOUGH { few } else { binned(histogram, &MANY) }
}

fn binned(histogram: &Histogram, steps: &[u64]) -> Vec<Bin> {
    let Some(first) = histogram.buckets().next() else { return Vec::new() };
    let decades = (0..17).map(|power| 10_u64.pow(power));
    let edges = decades.flat_map(|decade| steps.iter().map(move |step| decade * step / 100 * 100));
    let mut edges: Vec<_> = edges.filter(|edge| *edge >= 100).collect();
    edges.dedup();
    let start = edges.iter().rposition(|edge| *edge < first.to).unwrap_or(0);
    let mut bins: Vec<_> = edges[start..]
        .windows(2)
        .map(|edge| Bin { from_ns: edge[0], to_ns: edge[1], count: 0 })
        .collect();
    let mut place = 0;
    for bucket in histogram.buckets() {
        while place + 1 < bins.len() && bucket.to > bins[place].to_ns {
            place += 1;
        }
        bins[place].count += bucket.count;
    }
    bins.truncate(place + 1);
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(values: &[u64]) -> Vec<(u64, u64)> {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        bins(&histogram).iter().map(|bin| (bin.to_ns, bin.count)).collect()
    }

    #[test]
    fn bins_reach_from_the_shortest_to_the_longest() {
        assert_eq!(counts(&[]), []);
        let near = counts(&[100_000, 130_000, 130_000, 210_000]);
        assert_eq!(near, [(125_000, 1), (160_000, 2), (200_000, 0), (250_000, 1)]);
        let far = counts(&[100_000, 900_000_000]);
        assert_eq!((far.len(), far[0], far[far.len() - 1]), (12, (200_000, 1), (1_000_000_000, 1)));
        assert_eq!(counts(&[0, u64::MAX]).iter().map(|(_, count)| count).sum::<u64>(), 2);
    }
}
