//! Manual pages and completions, printed by the command itself.

use std::path::Path;

use super::platform::Processor;

/// A manual page of section 1.
pub(super) struct Page {
    /// The file name, such as `thruway-serve.1`.
    pub(super) name: String,
    pub(super) text: String,
}

/// A shell that has completions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// The place in which each shell looks for the scripts of packages, below `share`.
    pub(super) const PLACES: [(Self, &'static str); 3] = [
        (Self::Bash, "bash-completion/completions/thruway"),
        (Self::Zsh, "zsh/vendor-completions/_thruway"),
        (Self::Fish, "fish/vendor_completions.d/thruway.fish"),
    ];
}

/// Returns the page of the command, and one for each verb.
pub(super) fn pages(processor: Processor, program: &Path) -> Result<Vec<Page>, String> {
    let mut pages =
        vec![Page { name: "thruway.1".into(), text: output(processor, program, &["man"])? }];
    for verb in verbs(processor, program)? {
        let text = output(processor, program, &["man", &verb])?;
        pages.push(Page { name: format!("thruway-{verb}.1"), text });
    }
    Ok(pages)
}

/// Returns the completion script of a shell.
pub(super) fn completions(
    processor: Processor,
    program: &Path,
    shell: Shell,
) -> Result<String, String> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    output(processor, program, &["completions", name])
}

/// The verbs in the command's help.
fn verbs(processor: Processor, program: &Path) -> Result<Vec<String>, String> {
    let help = output(processor, program, &["--help"])?;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let verbs = listed.filter_map(|line| line.split_whitespace().next());
    Ok(verbs.filter(|verb| *verb != "help").map(str::to_owned).collect())
}

fn output(processor: Processor, program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = processor.start(program).args(arguments).output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("{} {} failed", program.display(), arguments.join(" ")));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
