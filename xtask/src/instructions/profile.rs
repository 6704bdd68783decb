//! Callgrind's output: costs per line of code, grouped by object file.

/// Sums the instructions of the object file `name`, without those of called functions elsewhere.
///
/// A line `ob=(ID) PATH` names the object of the following costs; later lines have the identifier alone. The line after
/// `calls=` is the inclusive cost of a call, which is counted at the callee.
pub(crate) fn own_instructions(text: &str, name: &str) -> u64 {
    let mut ours: Option<&str> = None;
    let (mut is_ours, mut is_call, mut sum) = (false, false, 0);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            let (id, path) = object.split_once(' ').unwrap_or((object, ""));
            if path.rsplit('/').next() == Some(name) {
                ours = Some(id);
            }
            if line.starts_with("ob=") {
                is_ours = ours == Some(id);
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost =
                line.split_ascii_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if is_ours && !is_call {
                sum += cost.unwrap_or(0);
            }
            is_call = false;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_an_object_are_its_own_lines() {
        let text = "version: 1\nevents: Ir\n\nob=(1) /usr/bin/ruby\nfn=(1) main\n10 5\ncob=(2) /a/thruway.so\n\
                    cfn=(2) serve\ncalls=1 20\n11 700\n\nob=(2)\nfn=(2)\n20 300\n+1 40\n* 2\ncob=(1)\ncfn=(1)\n\
                    calls=1 10\n* 358\n\nob=(1)\n12 9\n";
        assert_eq!(own_instructions(text, "thruway.so"), 342);
        assert_eq!(own_instructions(text, "ruby"), 14);
        assert_eq!(own_instructions(text, "libc.so.6"), 0);
    }
}
