//! Interleaved rounds, medians, and the state of the machine during the measurement.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// One of the compared programs.
pub(super) struct Contender<'a> {
    pub(super) name: &'static str,
    /// Runs once and returns the measured value.
    pub(super) run: Box<dyn FnMut() -> Result<f64, String> + 'a>,
}

/// The values of one contender, one per round.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: &'static str,
    values: Vec<f64>,
}

/// Runs every contender once a round, so that a slow minute of the machine affects all of them.
pub(super) fn interleave(
    rounds: usize,
    contenders: &mut [Contender<'_>],
) -> Result<Vec<Series>, String> {
    let series = |contender: &Contender<'_>| Series { name: contender.name, values: Vec::new() };
    let mut all: Vec<_> = contenders.iter().map(series).collect();
    for _ in 0..rounds {
        for (contender, series) in contenders.iter_mut().zip(&mut all) {
            let value =
                (contender.run)().map_err(|error| format!("{}: {error}", contender.name))?;
            series.values.push(value);
        }
    }
    Ok(all)
}

impl Series {
    pub(super) fn new(name: &'static str, values: Vec<f64>) -> Self {
        Self { name, values }
    }

    pub(super) fn largest(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            length if length % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        }
    }

    /// Half the range between the smallest and the largest value, as a share of the median.
    pub(super) fn spread(&self) -> f64 {
        let smallest = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        (self.largest() - smallest) / 2.0 / self.median()
    }

    /// The median with its spread, in the form of a table's cell.
    pub(super) fn cell(&self) -> String {
        let (median, spread) = (self.median(), self.spread() * 100.0);
        let digits = if median < 10.0 { 2 } else { usize::from(median < 100.0) };
        format!("{median:.digits$} ± {spread:.0} %")
    }
}

/// Returns the wall time of a command, which must succeed.
pub(super) fn wall(command: &mut Command) -> Result<Duration, String> {
    let start = Instant::now();
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let wall = start.elapsed();
    if output.status.success() {
        return Ok(wall);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {}", output.status, said.trim_end()))
}

/// The state of the machine at the start of a run.
pub(super) struct Machine {
    load: String,
}

impl Machine {
    pub(super) fn now() -> Self {
        Self { load: load() }
    }

    /// One line with the day, kernel, processors, and the load before and after.
    pub(super) fn until_now(&self) -> String {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        format!(
            "{}: Linux {}, {processors} processors; load {} before, {} after.",
            today(),
            kernel.trim(),
            self.load,
            load()
        )
    }
}

/// The day as year, month and day.
fn today() -> String {
    let date = Command::new("date").arg("+%F").output();
    date.map_or_else(|_| "today".into(), |date| String::from_utf8_lossy(&date.stdout).trim().into())
}

/// The load average of the last minute.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_order_and_outliers() {
        let series = |values: &[f64]| Series { name: "", values: values.to_vec() };
        assert!((series(&[3.0, 1.0, 100.0]).median() - 3.0).abs() < f64::EPSILON);
        assert!((series(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < f64::EPSILON);
        assert!((series(&[1.0, 2.0, 3.0]).spread() - 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn rounds_are_interleaved() {
        let order = std::cell::RefCell::new(String::new());
        let contender = |name: &'static str| Contender {
            name,
            run: Box::new(|| {
                order.borrow_mut().push_str(name);
                Ok(1.0)
            }),
        };
        interleave(2, &mut [contender("A"), contender("B")]).unwrap();
        assert_eq!(*order.borrow(), "ABAB");
    }
}
