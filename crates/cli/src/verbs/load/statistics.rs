//! Decides whether two servers differ, by a confidence interval for the ratio of their figures.

use serde::Serialize;

/// The 97.5th percentile of Student's t distribution by degrees of freedom, from 1. A two-sided interval of 95 %
/// leaves out as much at either end.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// A bound of the percentile for more than 30 degrees of freedom, which makes the interval slightly too wide.
const T_MANY: f64 = 2.042;

/// A ratio and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Returns the ratio of `b` to `a`, whose values come from the same rounds, or `None` with fewer than three rounds or
/// if a value is 0.
///
/// The ratio is the geometric mean of the ratios of all rounds: an influence that slows both servers in one round does
/// not change their ratio. The logarithms of the ratios are assumed to be normally distributed.
#[expect(clippy::cast_precision_loss, reason = "there are few rounds")]
pub(super) fn ratio(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let logarithms: Vec<_> = a.iter().zip(b).map(|(a, b)| (b / a).ln()).collect();
    if logarithms.len() < 3 || !logarithms.iter().all(|logarithm| logarithm.is_finite()) {
        return None;
    }
    let count = logarithms.len() as f64;
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|logarithm| (logarithm - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let reach = T.get(logarithms.len() - 2).copied().unwrap_or(T_MANY) * error;
    Some(Ratio { ratio: mean.exp(), low: (mean - reach).exp(), high: (mean + reach).exp() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_students_t() {
        // The logarithms are 0.1, 0.2 and 0.3: mean 0.2, standard error 0.1 / √3.
        let b = [0.1, 0.2, 0.3].map(f64::exp);
        let found = ratio(&[1.0; 3], &b).unwrap();
        let reach = 4.303 * 0.1 / 3.0_f64.sqrt();
        assert!((found.ratio - 0.2_f64.exp()).abs() < 1e-9);
        assert!((found.low - (0.2 - reach).exp()).abs() < 1e-9);
        assert!((found.high - (0.2 + reach).exp()).abs() < 1e-9);
    }

    #[test]
    fn what_slows_both_is_no_difference() {
        let a = [100.0, 50.0, 80.0, 120.0];
        let found = ratio(&a, &a.map(|value| value * 1.1)).unwrap();
        assert!((found.low - 1.1).abs() < 1e-9 && (found.high - 1.1).abs() < 1e-9);
    }

    #[test]
    fn too_little_is_known_of_few_rounds_and_of_zeros() {
        assert_eq!(ratio(&[1.0; 2], &[1.0; 2]), None);
        assert_eq!(ratio(&[0.0, 1.0, 1.0], &[1.0; 3]), None);
    }

    /// A server that is compared with itself shows a difference in about 5 % of the comparisons.
    #[test]
    fn equal_servers_rarely_differ() {
        let mut random = thruway_testing::Random::new(7);
        let mut run = || {
            (0..10).map(|_| 90.0 + f64::from(random.below(2000) as u32) / 100.0).collect::<Vec<_>>()
        };
        let differs = |found: Ratio| found.low > 1.0 || found.high < 1.0;
        let shown = (0..2000).filter(|_| ratio(&run(), &run()).is_some_and(differs)).count();
        assert!((40..160).contains(&shown), "{shown} of 2,000");
    }
}
