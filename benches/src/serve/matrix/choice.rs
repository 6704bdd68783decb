//! The parts of the matrix to measure: cells of workers, threads and clients, shapes of requests, and loads.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};

/// The measured part of the matrix.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MatrixChoice {
    /// serve-matrix: Cell of workers, threads and clients; may be repeated [default: six of them]
    #[arg(long = "cell", value_name = "W,T,C")]
    cells: Vec<Cell>,
    /// serve-matrix: Shapes of requests [default: all]
    #[arg(long = "shape", value_name = "SHAPE,...", value_delimiter = ',', value_enum)]
    shapes: Vec<Shape>,
    /// serve-matrix: Loads, of which 60 and 80 are percent of the best closed throughput [default: all]
    #[arg(long = "load", value_name = "LOAD,...", value_delimiter = ',', value_enum)]
    loads: Vec<Load>,
}

/// Workers, threads of each, and clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) workers: u32,
    pub(crate) threads: u32,
    pub(crate) clients: u32,
}

/// The work of a request; `benches/serve/shapes.rb` has the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Shape {
    /// Compute for 5 ms.
    Cpu5,
    /// Wait for 50 ms.
    Sleep50,
    /// Wait 4, compute 1.5, wait 6, compute 1.5 ms.
    Page,
    /// Many of compute 1, wait 1, compute 1 ms beside few of 4 × (compute 20, wait 10 ms).
    Tail,
    /// Respond at once.
    Short,
    /// A page of `examples/rails_app`.
    Rails,
}

/// The way in which clients send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Load {
    /// Each client sends the next request as soon as it has its response.
    Closed,
    /// At random times, at fixed rates; for `tail` alone.
    Open,
    /// At random times, at 60 % of the best closed throughput.
    #[value(name = "60")]
    Share60,
    /// At random times, at 80 % of the best closed throughput.
    #[value(name = "80")]
    Share80,
}

const CELLS: [(u32, u32, u32); 6] =
    [(1, 4, 10), (2, 1, 10), (2, 2, 10), (2, 3, 20), (2, 5, 32), (4, 3, 40)];

impl MatrixChoice {
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let all = CELLS.map(|(workers, threads, clients)| Cell { workers, threads, clients });
        if self.cells.is_empty() { all.to_vec() } else { self.cells.clone() }
    }

    pub(crate) fn shapes(&self) -> Vec<Shape> {
        chosen(&self.shapes)
    }

    /// The loads of a shape, the closed one first.
    pub(crate) fn loads(&self, shape: Shape) -> Vec<Load> {
        let mut loads = chosen(&self.loads);
        loads.sort_unstable();
        loads.retain(|load| *load != Load::Open || shape == Shape::Tail);
        loads
    }
}

fn chosen<T: ValueEnum>(given: &[T]) -> Vec<T> {
    if given.is_empty() { T::value_variants().to_vec() } else { given.to_vec() }
}

impl Shape {
    /// The requested paths.
    pub(crate) fn paths(self) -> &'static [&'static str] {
        match self {
            Self::Cpu5 => &["/cpu5"],
            Self::Sleep50 => &["/sleep50"],
            Self::Page => &["/page"],
            Self::Tail => &["/light", "/heavy"],
            Self::Short => &["/short"],
            Self::Rails => &["/stops/3"],
        }
    }
}

impl Load {
    /// The share of the closed throughput, for a load that is such a share.
    pub(crate) fn share(self) -> Option<f64> {
        match self {
            Self::Closed | Self::Open => None,
            Self::Share60 => Some(0.6),
            Self::Share80 => Some(0.8),
        }
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
        match numbers.unwrap_or_default()[..] {
            [workers, threads, clients] if threads > 0 && clients > 0 => {
                Ok(Self { workers, threads, clients })
            }
            _ => Err("write it as WORKERS,THREADS,CLIENTS, as in 2,3,20".into()),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}, {}", self.workers, self.threads, self.clients)
    }
}

/// The word on the command line.
macro_rules! shown_as_chosen {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let value = self.to_possible_value();
                formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
            }
        }
    )*};
}
shown_as_chosen!(Shape Load);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_three_numbers() {
        assert_eq!("2,3,20".parse(), Ok(Cell { workers: 2, threads: 3, clients: 20 }));
        for text in ["2,3", "2,0,10", "2,3,0", "2,3,x", "1,2,3,4", "x,1,2,3"] {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }

    #[test]
    fn fixed_rates_are_of_tail_alone() {
        let choice = MatrixChoice {
            loads: vec![Load::Share80, Load::Open, Load::Closed],
            ..Default::default()
        };
        assert_eq!(choice.loads(Shape::Page), [Load::Closed, Load::Share80]);
        assert_eq!(choice.loads(Shape::Tail), [Load::Closed, Load::Open, Load::Share80]);
        assert_eq!(MatrixChoice::default().cells().len(), 6);
        assert_eq!(MatrixChoice::default().shapes().len(), 6);
    }

    #[test]
    fn names_are_the_words_that_choose() {
        assert_eq!(
            (Shape::Sleep50.to_string(), Load::Share60.to_string()),
            ("sleep50".into(), "60".into())
        );
    }

    #[test]
    fn the_application_has_every_path() {
        let application = include_str!("../../../serve/shapes.rb");
        for shape in Shape::value_variants().iter().filter(|shape| **shape != Shape::Rails) {
            for path in shape.paths() {
                assert!(application.contains(&format!("\"{path}\" => [")), "{path}");
            }
        }
    }
}
