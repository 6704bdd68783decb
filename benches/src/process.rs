//! The processes of a server, as the kernel counts them.

use std::collections::BTreeMap;
use std::fs;

/// Ticks per second in which the kernel reports processor time; fixed on all Linux ports.
const TICKS_PER_SECOND: f64 = 100.0;

/// The process `root` and all its descendants.
pub(super) fn family(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(child, _)| *child));
        next += 1;
    }
    family
}

/// Seconds of processor time used by `processes` and their ended children.
pub(super) fn cpu_seconds(processes: &[u32]) -> f64 {
    let ticks = processes.iter().filter_map(|process| {
        let fields = stat(*process)?;
        // utime, stime, cutime, cstime: fields 14 to 17 in proc(5); the first two fields are cut
        // off.
        Some(fields[11..15].iter().filter_map(|field| field.parse::<f64>().ok()).sum::<f64>())
    });
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

/// Megabytes of memory of `processes`, where each shared page counts once.
pub(super) fn memory_mb(processes: &[u32]) -> f64 {
    let kilobytes = processes.iter().filter_map(|process| {
        let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().trim_end_matches(" kB").parse::<f64>().ok()
    });
    kilobytes.sum::<f64>() * 1024.0 / 1e6
}

/// The parent of each process.
fn parents() -> BTreeMap<u32, u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|process| Some((process, stat(process)?[1].parse().ok()?))).collect()
}

/// The fields of `/proc/PROCESS/stat` from the third on: the name before them may contain anything.
fn stat(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_belongs_to_the_family_and_counts() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let family = family(std::process::id());
        assert!(family.contains(&child.id()));
        assert!(memory_mb(&[child.id()]) > 0.0);
        assert!(cpu_seconds(&family) >= cpu_seconds(&[child.id()]));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
