//! The arguments of `thruway load` for one shape and load.

use super::choice::{Cell, Load, Shape};

/// The weights of short and long requests in a closed loop of `tail`.
const TAIL_WEIGHTS: [u32; 2] = [19, 1];
/// The requests per second of `tail` at its fixed rates, for each processor of the workers.
const TAIL_RATES: [f64; 2] = [100.0, 4.0];
/// The connections of `tail`'s open loops: more than ever wait, so that requests wait for the server alone.
const TAIL_CONNECTIONS: [u32; 2] = [40, 16];

/// The options of one run; `rate` is that of an open loop at a share of the closed throughput.
pub(crate) fn options(
    cell: Cell,
    shape: Shape,
    load: Load,
    rate: f64,
    seconds: f64,
    processors: u32,
) -> Vec<String> {
    let duration = ["-d".to_owned(), seconds.to_string()];
    let clients = ["-c".to_owned(), cell.clients.to_string()];
    let words = match (shape, load) {
        (Shape::Tail, Load::Closed) => {
            let weights = TAIL_WEIGHTS.map(|weight| weight.to_string()).join(",");
            [&clients[..], &["--weights".to_owned(), weights]].concat()
        }
        (_, Load::Closed) => clients.to_vec(),
        (Shape::Tail, Load::Open) => {
            let usable = f64::from(cell.workers.max(1).min(processors));
            tail_classes(TAIL_RATES.map(|rate| rate * usable))
        }
        (Shape::Tail, _) => {
            let sum = f64::from(TAIL_WEIGHTS.iter().sum::<u32>());
            tail_classes(TAIL_WEIGHTS.map(|weight| rate * f64::from(weight) / sum))
        }
        _ => {
            let rate =
                ["--arrivals", "poisson", "--rate", &format!("{rate:.2}")].map(str::to_owned);
            [&clients[..], &rate].concat()
        }
    };
    [&words[..], &duration].concat()
}

/// A class for each of the two kinds of requests.
fn tail_classes(rates: [f64; 2]) -> Vec<String> {
    let class = |place: usize| {
        let (connections, rate) = (TAIL_CONNECTIONS[place], rates[place]);
        let url = place + 1;
        format!("scheduled={connections},rate={rate:.2},arrivals=poisson,url={url}")
    };
    ["--class".into(), class(0), "--class".into(), class(1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(workers: u32, shape: Shape, load: Load) -> String {
        let cell = Cell { workers, threads: 3, clients: 20 };
        options(cell, shape, load, 200.0, 3.0, 2).join(" ")
    }

    #[test]
    fn a_closed_loop_has_the_cells_clients() {
        assert_eq!(words(2, Shape::Page, Load::Closed), "-c 20 -d 3");
        assert_eq!(words(2, Shape::Tail, Load::Closed), "-c 20 --weights 19,1 -d 3");
    }

    #[test]
    fn a_share_is_asked_at_random() {
        let expected = "-c 20 --arrivals poisson --rate 200.00 -d 3";
        assert_eq!(words(2, Shape::Cpu5, Load::Share60), expected);
        let tail = words(2, Shape::Tail, Load::Share80);
        assert!(tail.contains("rate=190.00,arrivals=poisson,url=1"), "{tail}");
        assert!(tail.contains("rate=10.00,arrivals=poisson,url=2"), "{tail}");
    }

    #[test]
    fn fixed_rates_are_by_usable_processor() {
        for (workers, rates) in [(1, [100, 4]), (2, [200, 8]), (4, [200, 8])] {
            let open = words(workers, Shape::Tail, Load::Open);
            assert!(rates.iter().all(|rate| open.contains(&format!("rate={rate}.00"))), "{open}");
        }
    }
}
