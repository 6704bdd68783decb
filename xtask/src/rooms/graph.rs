//! Circles of a directed graph.

use std::collections::BTreeSet;

/// Returns the groups of two or more nodes in which each node leads to each other (Tarjan's strongly connected
/// components).
pub(crate) fn circles(nodes: usize, arrows: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let mut search = Search {
        arrows,
        order: vec![None; nodes],
        lowest: vec![0; nodes],
        open: Vec::new(),
        visited: 0,
        circles: Vec::new(),
    };
    for node in 0..nodes {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    search.circles
}

struct Search<'a> {
    arrows: &'a BTreeSet<(usize, usize)>,
    /// The position at which each node was visited.
    order: Vec<Option<usize>>,
    /// The earliest position that is reachable from each node.
    lowest: Vec<usize>,
    open: Vec<usize>,
    visited: usize,
    circles: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        self.order[node] = Some(self.visited);
        self.lowest[node] = self.visited;
        self.visited += 1;
        self.open.push(node);
        for (_, next) in self.arrows.range((node, 0)..=(node, usize::MAX)) {
            match self.order[*next] {
                None => {
                    self.visit(*next);
                    self.lowest[node] = self.lowest[node].min(self.lowest[*next]);
                }
                Some(order) if self.open.contains(next) => {
                    self.lowest[node] = self.lowest[node].min(order);
                }
                Some(_) => {}
            }
        }
        if self.order[node] == Some(self.lowest[node]) {
            let start = self.open.iter().rposition(|open| *open == node).unwrap_or_default();
            let mut circle = self.open.split_off(start);
            circle.sort_unstable();
            if circle.len() > 1 {
                self.circles.push(circle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_back_is_a_circle() {
        let arrows = [(0, 1), (1, 2), (2, 1), (3, 0), (2, 4), (4, 5), (5, 4), (3, 3)].into();
        assert_eq!(circles(6, &arrows), [vec![4, 5], vec![1, 2]]);
        assert!(circles(3, &[(0, 1), (1, 2), (0, 2)].into()).is_empty());
    }
}
