//! The steps of the check.

use std::path::{Path, PathBuf};

use super::step::{Kind, Step};

/// The tests of the boot in the portable mode. Random edits are left out, because the portable mode is one of their
/// modes. Tests that do not depend on the mode are left out too: patched methods, time zones, and the collector.
const PORTABLE_TESTS: [&str; 13] = [
    "-Itarget/debug/gem",
    "-Igem/lib",
    "-Igem/test",
    "-w",
    "-rdeadline",
    "-e",
    "ENV['THRUWAY_PORTABLE'] = '1'",
    "-e",
    "files = Dir['gem/test/boot/*_test.rb'].grep_v(/freshness|patches|zones|collector/).sort",
    "-e",
    "files.each { |file| require \"./#{file}\" }",
    "--",
    "--no-plugins",
];

/// Every `examples/*/test/*_test.rb` in one process; applications run in processes of their own.
const EXAMPLE_TESTS: [&str; 8] = [
    "-Igem/test",
    "-w",
    "-rdeadline",
    "-e",
    "Dir['examples/*/test/*_test.rb'].sort.each { |file| require \"./#{file}\" }",
    "--",
    "--no-plugins",
    "--verbose",
];

/// The step that builds and lints the binary, the extension and all tests.
const BUILD: &str = "build and lints";

/// Returns all steps. Of several steps that may start, the first one does. Tests of both kinds need the extension, so
/// `BUILD` comes before them. Afterwards, one step compiles while another one tests.
pub(super) fn steps(root: &Path) -> Vec<Step> {
    use Kind::{Compiles, Light, Measures, Tests};
    let step = |title, kind, after, program: &PathBuf, arguments: &[&'static str]| Step {
        title,
        kind,
        after,
        program: program.clone(),
        arguments: arguments.to_vec(),
        lints: false,
    };
    let (cargo, task) = (&crate::command::cargo(), &crate::command::own_program());
    let (typos, ruby) = (&root.join("target/tools/bin/typos"), &PathBuf::from("ruby"));
    let rubocop = &PathBuf::from("rubocop");
    vec![
        step("format", Light, &[], cargo, &["fmt", "--all", "--check"]),
        step("spelling", Light, &[], typos, &[]),
        step("text", Light, &[], task, &["text"]),
        step("rooms", Light, &[], task, &["rooms"]),
        step("units", Light, &[], task, &["units"]),
        step("ruby style", Light, &[], rubocop, &["--format", "simple"]),
        step(BUILD, Compiles, &[], task, &["gem", "--tests"]),
        Step { lints: true, ..step("tests", Tests, &[BUILD], cargo, &["test", "--workspace"]) },
        step("optimised build", Compiles, &[BUILD], task, &["instructions", "--build"]),
        // The longest step of the tests is listed before the compilations that follow, so that most of them run beside
        // it.
        step("gem tests", Tests, &[BUILD, "tests"], task, &["gem-tests"]),
        step("packages", Compiles, &[BUILD], task, &["packages"]),
        step("windows", Compiles, &[BUILD], task, &["windows"]),
        step("aarch64", Compiles, &[BUILD], task, &["aarch64"]),
        step("portable", Compiles, &[BUILD], task, &["portable"]),
        step("boot where calls are not answered", Tests, &[BUILD], ruby, &PORTABLE_TESTS),
        step("examples", Tests, &[BUILD], ruby, &EXAMPLE_TESTS),
        step("suites", Tests, &[BUILD], task, &["suites", "--at-hand", "--operations", "1000"]),
        step("instructions", Measures, &["optimised build"], task, &["instructions"]),
    ]
}

/// Returns the steps that match the texts, or all without texts. A text that matches no step is an error.
pub(super) fn chosen(steps: Vec<Step>, only: &[String]) -> Result<Vec<Step>, String> {
    let is_named = |step: &Step, text: &str| {
        // A whole title selects that step alone, even if other titles contain it.
        let is_title = steps.iter().any(|step| step.title == text);
        if is_title { step.title == text } else { step.title.contains(text) }
    };
    for text in only {
        if !steps.iter().any(|step| is_named(step, text)) {
            let titles = steps.iter().map(|step| step.title).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "no step has {text:?} in its title\n\nhint: the steps are {titles}"
            ));
        }
    }
    let keeps = |step: &Step| only.is_empty() || only.iter().any(|text| is_named(step, text));
    let kept: Vec<_> = steps.iter().map(keeps).collect();
    Ok(steps.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(step, _)| step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_not_there_is_an_error() {
        let titles = |only: &[&str]| -> Result<Vec<_>, String> {
            let only: Vec<_> = only.iter().map(|text| (*text).to_owned()).collect();
            Ok(chosen(steps(Path::new("/")), &only)?.iter().map(|step| step.title).collect())
        };
        assert_eq!(titles(&["gem t"]), Ok(vec!["gem tests"]));
        assert_eq!(titles(&["tests"]), Ok(vec!["tests"]));
        assert_eq!(titles(&["windows", "lints"]), Ok(vec![BUILD, "windows"]));
        assert_eq!(titles(&[]).map(|all| all.len()), Ok(steps(Path::new("/")).len()));
        let message = titles(&["lints", "nosuch"]).unwrap_err();
        assert!(
            message
                .starts_with("no step has \"nosuch\" in its title\n\nhint: the steps are format, ")
        );
    }

    #[test]
    fn a_step_waits_for_steps_before_it_alone() {
        let steps = steps(Path::new("/"));
        for (number, step) in steps.iter().enumerate() {
            for title in step.after {
                assert!(steps[..number].iter().any(|before| before.title == *title), "{title}");
            }
        }
    }
}
