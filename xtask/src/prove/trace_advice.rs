//! `cargo x prove trace-advice`: common commands in an environment with useless folders. All advice of `thruway trace`
//! on them is followed as it is printed. The results must stay the same, and the calls must become fewer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::trace_place::{COMMANDS, TracePlace};

/// The useless folders in each list of the environment.
const FOLDERS: usize = 8;
/// The useless folders in the options of compilers.
const MANY_FOLDERS: usize = 30;
/// The lists that have useless folders.
const LISTS: [&str; 9] =
    ["path", "python", "libraries", "classes", "I", "L", "cp", "sys.path", "run path"];
/// Commands that print the variables that advice may set.
const PRINTS_VARIABLES: [&str; 1] = ["locale"];
/// Advice must save at least this share of the look-ups that it promises "up to".
const SAVED_MIN: f64 = 0.5;

/// The results of a command. A file is its content; a folder has none.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    status: Option<i32>,
    output: Vec<u8>,
    errors: Vec<u8>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// Advice as `--json` has it.
struct PrintedAdvice {
    title: String,
    how: String,
    form: String,
    saves: f64,
}

/// The counts of the proof.
#[derive(Default)]
struct Counts {
    commands: u32,
    followed: u32,
    /// Advice that installs packages, or edits a file that the proof does not have.
    not_followed: u32,
    wrong: Vec<String>,
}

pub(super) fn prove(root: &Path) -> Result<(), String> {
    let mut place = TracePlace::new(root)?;
    let fixtures = fixtures(place.folder.path())?;
    place.set(environment(&place, &fixtures));
    let own = own_commands(&fixtures);
    let mut counts = Counts::default();
    let usual = COMMANDS.lines().map(str::to_owned);
    for command in usual.chain(own).filter(|command| place.is_installed(command)) {
        counts.commands += 1;
        check(&place, &command, &mut counts)?;
    }
    let Counts { commands, followed, not_followed, wrong } = counts;
    println!(
        "{commands} commands: {followed} pieces of advice followed, {} of them wrong, \
         {not_followed} not followed",
        wrong.len()
    );
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Follows each piece of advice on a command by itself.
fn check(place: &TracePlace<'_>, command: &str, counts: &mut Counts) -> Result<(), String> {
    let line = format!("sh -c {}", quoted(command));
    // The first run warms the caches, and the second shows which results differ by themselves.
    let (first, second) = (outcome(place, &line)?, outcome(place, &line)?);
    for advice in advice(place, command)? {
        let Some(followed) = followed(place, &advice, command, &line) else {
            println!("  not followed  {command}\n    {}: {}", advice.title, advice.how);
            counts.not_followed += 1;
            continue;
        };
        counts.followed += 1;
        // The second run finds files that the advice creates in the first run, such as an index.
        outcome(place, &followed)?;
        let after = outcome(place, &followed)?;
        let saved = calls(place, &line)? - calls(place, &followed)?;
        let mut changed = difference(&first, &second, &after);
        if changed.is_some() {
            // A result such as the time of day may repeat itself in two runs and differ in the third.
            changed = difference(&first, &outcome(place, &line)?, &after);
        }
        let changed =
            changed.filter(|_| advice.form != "setting" || !PRINTS_VARIABLES.contains(&command));
        let wrong = changed.or_else(|| {
            (saved < SAVED_MIN * advice.saves).then(|| format!("{saved} calls are saved"))
        });
        match wrong {
            None => println!("{saved:>7} of {:>7}  {command}: {}", advice.saves, advice.title),
            Some(wrong) => {
                let PrintedAdvice { title, how, saves, .. } = &advice;
                let wrong = format!("{wrong}  {command}\n    {title} (up to {saves}): {how}");
                println!("  WRONG: {wrong}");
                counts.wrong.push(wrong);
            }
        }
    }
    Ok(())
}

/// Returns a line for a shell in which the advice is followed, or `None` if that changes the machine or another file.
fn followed(
    place: &TracePlace<'_>,
    advice: &PrintedAdvice,
    command: &str,
    line: &str,
) -> Option<String> {
    let how = &advice.how;
    let start = how.split(' ').next().unwrap_or_default();
    match (advice.form.as_str(), start) {
        ("setting", "apt-get" | "dnf" | "localedef") => None,
        ("setting", "patchelf") => {
            let own = place.folder.path().display().to_string();
            let is_own = how.rsplit(' ').next().is_some_and(|program| program.starts_with(&own));
            (is_own && place.is_installed(start)).then(|| format!("{how}\n{line}"))
        }
        ("setting", _) => Some(format!("{how}\n{line}")),
        ("command", _) => Some(how.clone()),
        _ => edited(how, command).map(|command| format!("sh -c {}", quoted(&command))),
    }
}

/// Takes words out of a command, as advice says: `drop 2 of 3 options -I: -Ia -Ib`, `drop 2 of 3 options -I, all but
/// -Ic`, `drop all 3 options -I`, `drop 2 of 3 folders of -cp, all but c`, or folders to leave out of `sys.path`.
fn edited(how: &str, command: &str) -> Option<String> {
    let (told, words) =
        how.split_once(": ").or_else(|| how.split_once(", all but ")).unwrap_or((how, ""));
    let words: Vec<_> = words.split(' ').collect();
    if told.starts_with("leave out of the program's sys.path") {
        let left_out = words.iter().try_fold(command.to_owned(), |command, folder| {
            let entry = format!("'{folder}',");
            command.contains(&entry).then(|| command.replace(&entry, ""))
        });
        return left_out;
    }
    if let Some((_, option)) = told.split_once(" folders of ") {
        let (before, after) = command.split_once(&format!(" {option} "))?;
        let (_, after) = after.split_once(' ')?;
        return Some(format!("{before} {option} {} {after}", words.join(" ")));
    }
    let (_, option) = told.split_once(" options ")?;
    let is_kept_only = how.contains(", all but ");
    let is_dropped = |word: &&str| {
        let is_option = word.starts_with(option) && word.len() > option.len();
        is_option && (told.starts_with("drop all ") || words.contains(word) != is_kept_only)
    };
    let kept: Vec<_> = command.split(' ').filter(|word| !is_dropped(word)).collect();
    (kept.join(" ") != command).then(|| kept.join(" "))
}

/// Runs a line in bash, the shell for whose quotes advice is printed.
fn outcome(place: &TracePlace<'_>, line: &str) -> Result<Outcome, String> {
    let output = place.run(&mut Command::new("bash"), line)?;
    let mut files = BTreeMap::new();
    collect(&place.scratch(), &mut files).map_err(|error| error.to_string())?;
    Ok(Outcome {
        status: output.status.code(),
        output: output.stdout,
        errors: output.stderr,
        files,
    })
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.insert(entry.path(), Vec::new());
            collect(&entry.path(), files)?;
        } else {
            // A link may lead nowhere.
            files.insert(entry.path(), fs::read(entry.path()).unwrap_or_default());
        }
    }
    Ok(())
}

/// Names the first result that advice has changed, among those that two plain runs have in common.
fn difference(first: &Outcome, second: &Outcome, after: &Outcome) -> Option<String> {
    let changes = [
        ("the status", first.status == second.status, first.status == after.status),
        ("the output", first.output == second.output, first.output == after.output),
        ("the errors", first.errors == second.errors, first.errors == after.errors),
        ("the files", first.files == second.files, first.files == after.files),
    ];
    let changed = changes.iter().find(|(_, repeats, is_same)| *repeats && !*is_same);
    changed.map(|(what, ..)| {
        let said = String::from_utf8_lossy(&after.errors);
        format!("{what} changed; errors: {}", said.lines().next().unwrap_or_default())
    })
}

/// Returns the printed advice on a command.
fn advice(place: &TracePlace<'_>, command: &str) -> Result<Vec<PrintedAdvice>, String> {
    let mut sh = traced(place, "sh");
    let lines = report(place, &mut sh, command)?;
    let of_advice = lines.iter().filter(|line| line["group"] == "advice");
    let text = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let advice = of_advice.map(|line| PrintedAdvice {
        title: text(line, "title"),
        how: text(line, "how"),
        form: text(line, "form"),
        saves: line["saves"].as_f64().unwrap_or(f64::NAN),
    });
    Ok(advice.collect())
}

fn calls(place: &TracePlace<'_>, line: &str) -> Result<f64, String> {
    let lines = report(place, &mut traced(place, "bash"), line)?;
    lines[0]["calls"].as_f64().ok_or_else(|| "a report without a count".to_owned())
}

/// `thruway trace` of a shell, with a report for programs.
fn traced(place: &TracePlace<'_>, shell: &str) -> Command {
    let mut trace = place.thruway();
    let json = format!("--json={}", report_file(place).display());
    trace.args(["trace", "--quiet", &json, "--", shell]);
    trace
}

fn report_file(place: &TracePlace<'_>) -> PathBuf {
    place.folder.path().join("report")
}

fn report(
    place: &TracePlace<'_>,
    trace: &mut Command,
    command: &str,
) -> Result<Vec<Value>, String> {
    place.run(trace, command)?;
    let text = fs::read_to_string(report_file(place)).map_err(|error| error.to_string())?;
    let lines = text.lines().map(|line| serde_json::from_str(line).ok());
    lines.collect::<Option<Vec<_>>>().filter(|lines| !lines.is_empty()).ok_or(text)
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The variables of all commands: lists that begin with useless folders, and a locale whose name is not the installed
/// one.
fn environment(place: &TracePlace<'_>, fixtures: &Path) -> Vec<(&'static str, String)> {
    let list = |of: &str| {
        let folders: Vec<_> = (0..FOLDERS).map(|number| useless(fixtures, of, number)).collect();
        folders.join(":")
    };
    let path = std::env::var("PATH").unwrap_or_default();
    vec![
        ("PATH", format!("{}:{}:{path}", place.programs.display(), list("path"))),
        ("PYTHONPATH", list("python")),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        ("LD_LIBRARY_PATH", list("libraries")),
        ("CLASSPATH", format!("{}:{}/classes", list("classes"), fixtures.display())),
        ("LANG", "C.UTF-8".to_owned()),
        ("LC_ALL", String::new()),
        ("LANGUAGE", "qq".to_owned()),
        ("TERM", "xterm".to_owned()),
        ("HOME", fixtures.display().to_string()),
        ("XDG_CACHE_HOME", place.folder.path().join("cache").display().to_string()),
    ]
}

/// An empty folder for one list. No other list has the folder, so that its look-ups are those of the list.
fn useless(fixtures: &Path, list: &str, number: usize) -> String {
    fixtures.join("useless").join(list).join(number.to_string()).display().to_string()
}

/// Makes the files of [`own_commands`].
fn fixtures(folder: &Path) -> Result<PathBuf, String> {
    let fixtures = folder.join("fixtures");
    let write = |name: &str, text: &str| {
        let file = fixtures.join(name);
        let parent = file.parent().unwrap_or(&fixtures);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&file, text));
        written.map_err(|error| format!("{}: {error}", file.display()))
    };
    for list in LISTS {
        for number in 0..MANY_FOLDERS {
            let folder = useless(&fixtures, list, number);
            fs::create_dir_all(&folder).map_err(|error| format!("{folder}: {error}"))?;
        }
    }
    write("include/seven.h", "#define SEVEN 7\n")?;
    write(
        "main.c",
        "#include <stdio.h>\n#include <seven.h>\nint f(void);\nint main(void) { return f() - SEVEN; }\n",
    )?;
    write("f.c", "int f(void) { return 7; }\n")?;
    write(
        "Main.java",
        "public class Main { public static void main(String[] a) { new Other(); } }\nclass Other { }\n",
    )?;
    for number in 0..4 {
        write(&format!("classes/node_modules/m{number}/index.js"), "exports.v = 1\n")?;
    }
    let requires: String = (0..4).map(|number| format!("require('m{number}');\n")).collect();
    write("classes/a/b/c/main.js", &format!("{requires}console.log('done');\n"))?;
    for folder in ["a", "a/b", "a/b/c"] {
        write(&format!("classes/{folder}/node_modules/other/index.js"), "")?;
    }
    let run_path: String = (0..MANY_FOLDERS)
        .map(|number| format!("{}:", useless(&fixtures, "run path", number)))
        .collect();
    let build = format!(
        "mkdir -p lib && gcc -shared -fPIC -o lib/libf.so f.c && \
         gcc -I include main.c -Llib -lf -Wl,-rpath,{run_path}$PWD/lib -o main; \
         javac -d classes Main.java; true"
    );
    crate::command::succeed(Command::new("sh").args(["-c", &build]).current_dir(&fixtures))?;
    Ok(fixtures)
}

/// Commands whose lists of folders come from options and from files.
fn own_commands(fixtures: &Path) -> Vec<String> {
    let all = |list: &str, before: &str, after: &str| -> String {
        (0..MANY_FOLDERS)
            .map(|number| format!("{before}{}{after}", useless(fixtures, list, number)))
            .collect()
    };
    let at = fixtures.display();
    let (include, link) = (all("I", "-I", " "), all("L", "-L", " "));
    let (classes, quoted) = (all("cp", "", ":"), all("sys.path", "'", "',"));
    vec![
        format!("gcc -c {include}-I{at}/include -o $SCRATCH/main.o {at}/main.c"),
        format!("gcc -I{at}/include {link}-L{at}/lib -o $SCRATCH/main {at}/main.c -lf"),
        format!("gcc {include}-fsyntax-only {at}/f.c"),
        format!("java -cp {classes}{at}/classes Main"),
        "java Main".to_owned(),
        format!("java -cp {classes}{at}/classes Missing"),
        format!("python3 -c \"import sys; sys.path[:0] = [{quoted}]; import json, http.client, decimal\""),
        "python3 -c 'import json, http.client, xml.dom.minidom, decimal, asyncio; print(json.dumps(7))'".to_owned(),
        format!("node {at}/classes/a/b/c/main.js"),
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do tput cols; done".to_owned(),
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do date +%Y; done".to_owned(),
        "for i in 1 2 3 4 5 6; do env true; ls /none; nowhere; done".to_owned(),
        "perl -MPOSIX -e 'for (1..30) { print strftime(\"%Y\", localtime(86400 * $_)) }'".to_owned(),
        "python3 -c 'import time; [time.strftime(\"%Y\", time.localtime(9)) for _ in range(30)]'".to_owned(),
        "ls -lR docs/explanation".to_owned(),
        "LANG=de_DE.UTF-8 ls /none".to_owned(),
        "ruby -rjson -ryaml -rset -rtime -rerb -e 'puts JSON.generate([1])'".to_owned(),
        "ruby -rrubygems -e 'Gem::Specification.each { |one| one.name }; puts 1'".to_owned(),
        // The last one, because following the advice changes the program for good.
        format!("{at}/main"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_out_as_the_advice_says() {
        let command = "gcc -Ia -Ib -Ic x.c";
        let edit = |how| edited(how, command);
        assert_eq!(edit("drop 2 of 3 options -I: -Ia -Ib").as_deref(), Some("gcc -Ic x.c"));
        assert_eq!(edit("drop 2 of 3 options -I, all but -Ic").as_deref(), Some("gcc -Ic x.c"));
        assert_eq!(edit("drop all 3 options -I").as_deref(), Some("gcc x.c"));
        assert_eq!(edit("drop all 3 options -L"), None, "they are not in the command");
        let how = "drop 2 of 3 folders of -cp, all but c";
        assert_eq!(edited(how, "java -cp a:b:c Main").as_deref(), Some("java -cp c Main"));
        let python = "python3 -c \"sys.path[:0] = ['/a','/b',]\"";
        let how = "leave out of the program's sys.path, or of *.pth: /a";
        assert_eq!(edited(how, python).as_deref(), Some("python3 -c \"sys.path[:0] = ['/b',]\""));
    }

    #[test]
    fn a_result_that_does_not_repeat_itself_is_not_compared() {
        let outcome = |status, output: &[u8]| Outcome {
            status: Some(status),
            output: output.to_vec(),
            errors: Vec::new(),
            files: BTreeMap::new(),
        };
        let (first, second) = (outcome(0, b"1 ms"), outcome(0, b"2 ms"));
        assert_eq!(difference(&first, &second, &outcome(0, b"3 ms")), None);
        assert!(difference(&first, &second, &outcome(1, b"3 ms")).is_some());
        assert!(difference(&first, &outcome(0, b"1 ms"), &outcome(0, b"")).is_some());
    }
}
