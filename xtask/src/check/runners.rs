//! Parses the lines of test runners, libtest's and minitest's.

/// Returns the name of the test whose failure the line reports.
pub(crate) fn failed_test(line: &str) -> Option<&str> {
    let libtest = || line.strip_prefix("test ")?.strip_suffix(" ... FAILED");
    let minitest = || {
        let line = line.strip_suffix(" s = F").or_else(|| line.strip_suffix(" s = E"))?;
        Some(line.rsplit_once(" = ")?.0)
    };
    libtest().or_else(minitest)
}

/// Whether the line is the last one of a test runner that ran at least one test.
pub(super) fn is_summary(line: &str) -> bool {
    let libtest = line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed");
    libtest || (line.contains(" runs, ") && line.contains(" assertions, "))
}

/// Whether the line reports a skipped part and the reason.
pub(super) fn is_skip(line: &str) -> bool {
    line.contains("skipped: ") || line.contains(": skipped, because ")
}

/// Returns the name and the seconds of a finished test of minitest.
pub(super) fn timed_test(line: &str) -> Option<(&str, f64)> {
    let (test, _) = line.rsplit_once(" s = ")?;
    let (name, seconds) = test.rsplit_once(" = ")?;
    Some((name, seconds.parse().ok()?))
}

/// Returns the name of the tests that libtest runs next. Single tests have no times, but each of its programs has one.
pub(super) fn program_of_tests(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().strip_prefix("Running ")?.split_once(" (target/")?;
    Some(name)
}

/// Returns the duration of a libtest program in seconds, from its last line.
pub(super) fn program_seconds(line: &str) -> Option<f64> {
    line.strip_prefix("test result:")?
        .rsplit_once("finished in ")?
        .1
        .strip_suffix('s')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_known_by_its_name() {
        assert_eq!(failed_test("test serve::a_page ... FAILED"), Some("serve::a_page"));
        assert_eq!(failed_test("BootTest#test_a_page = 0.10 s = F"), Some("BootTest#test_a_page"));
        assert_eq!(failed_test("BootTest#test_a = b = 0.10 s = E"), Some("BootTest#test_a = b"));
        assert_eq!(failed_test("BootTest#test_a_page = 0.10 s = ."), None);
        assert_eq!(failed_test("BootTest#test_a_page = 0.10 s = S"), None);
        assert_eq!(failed_test("test serve::a_page ... ok"), None);
    }

    #[test]
    fn summaries_are_told_from_other_lines() {
        assert!(is_summary("test result: ok. 17 passed; 0 failed; 0 ignored; 0 measured"));
        assert!(is_summary("12 runs, 30 assertions, 0 failures, 0 errors, 0 skips"));
        assert!(!is_summary("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured"));
        assert!(!is_summary("running 17 tests"));
        assert!(is_skip("skipped: /dev/fuse: No such file or directory"));
        assert!(is_skip("test mount::a_test ... skipped: /dev/fuse: No such file or directory"));
        assert!(is_skip("windows: skipped, because this machine lacks wine"));
        assert!(!is_skip("test mount::a_test ... ok"));
    }

    #[test]
    fn times_are_read_from_both_runners() {
        assert_eq!(
            timed_test("BootTest#test_a = b = 1.25 s = ."),
            Some(("BootTest#test_a = b", 1.25))
        );
        assert_eq!(timed_test("12 runs, 30 assertions"), None);
        let line = "     Running ../../tests/it/main.rs (target/debug/deps/it-0123)";
        assert_eq!(program_of_tests(line), Some("../../tests/it/main.rs"));
        assert_eq!(program_of_tests("   Doc-tests thruway_sys"), None);
        let line = "test result: ok. 95 passed; 0 failed; 0 ignored; finished in 465.18s";
        assert_eq!(program_seconds(line), Some(465.18));
    }
}
