//! The programs that boot. Generated programs are below `target/bench/boot`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::context::BenchContext;
use crate::serve::system_root::EnteredRoot;

/// The folder of Debian's Redmine.
const REDMINE: &str = "/usr/share/redmine";

/// A program and its command.
#[derive(Debug)]
pub(super) struct Program {
    /// The name of its folder of caches.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) folder: PathBuf,
    pub(super) words: Vec<&'static str>,
    /// The command with Spring, if there is one.
    pub(super) with_spring: Vec<&'static str>,
    pub(super) environment: Vec<(&'static str, String)>,
}

/// The path and the content of feature `number` of a shape.
type Shape = fn(u32) -> (String, String);

/// The four shapes: name, title, number of features, the program's way to require them, and the features.
const SHAPES: [(&str, &str, u32, &str, Shape); 4] = [
    ("empty", "`core_require_empty`: 1000 empty features in one folder", 1000, EACH, |n| {
        (format!("lib/f{n}.rb"), String::new())
    }),
    ("folders", "1000 empty features, 20 in each of 50 folders", 1000, EACH, |n| {
        (format!("lib{}/f{n}.rb", n % 50), String::new())
    }),
    ("nested", "`core_require_nested`: 100 features, each a folder deeper", 100, FIRST, |n| {
        (
            format!("lib/{}f{n}.rb", "d/".repeat(n as usize - 1)),
            next(n, 100, "require_relative 'd/f"),
        )
    }),
    ("chain", "200 features, each of which requires the next", 200, FIRST, |n| {
        (format!("lib/f{n}.rb"), next(n, 200, "require 'f"))
    }),
];

const EACH: &str = "(1..1000).each { |number| require \"f#{number}\" }";
const FIRST: &str = "require \"f1\"";

/// The line of a feature's source that requires the next feature; empty in the last feature.
fn next(number: u32, last: u32, require: &str) -> String {
    if number == last { String::new() } else { format!("{require}{}'\n", number + 1) }
}

pub(super) fn synthetic(context: &BenchContext) -> Result<Vec<Program>, String> {
    let program = |(name, title, features, requires, shape): (&str, &str, u32, &str, Shape)| {
        let folder =
            make_folder(context, name, |folder| features_below(folder, features, requires, shape))?;
        let (words, with_spring, environment) = (vec!["ruby", "main.rb"], Vec::new(), Vec::new());
        let (name, title) = (name.to_owned(), title.to_owned());
        Ok(Program { name, title, folder, words, with_spring, environment })
    };
    SHAPES.into_iter().map(program).collect()
}

/// Returns the commands that developers start in the example application.
pub(super) fn commands(
    context: &BenchContext,
    system: Option<&EnteredRoot>,
) -> Result<Vec<Program>, String> {
    let folder = application(context, system)?;
    let program = |name, title, words: &[&'static str], with_spring: &[&'static str]| Program {
        name: name_on(system, name),
        title: title_on(system, title),
        folder: folder.clone(),
        words: words.to_vec(),
        with_spring: with_spring.to_vec(),
        environment: vec![("RAILS_ENV", "development".into())],
    };
    let runner = ["ruby", "bin/rails", "runner", "0"];
    let with_spring = ["spring", "rails", "runner", "0"];
    let environment = ["rake", "environment"];
    Ok(vec![
        program("runner", "`rails runner 0`, in development", &runner, &with_spring),
        program("tasks", "`rake -T`, in development", &["rake", "-T"], &["spring", "rake", "-T"]),
        program(
            "environment",
            "`rake environment`, in development",
            &environment,
            &["spring", "rake", "environment"],
        ),
    ])
}

/// Returns the run of one small test file of the example application.
pub(super) fn one_test(context: &BenchContext) -> Result<Program, String> {
    Ok(Program {
        name: "test".to_owned(),
        title: "`rails test` of one small file".to_owned(),
        folder: application(context, None)?,
        words: vec!["ruby", "bin/rails", "test", "test/stop_test.rb"],
        with_spring: vec!["spring", "rails", "test", "test/stop_test.rb"],
        environment: Vec::new(),
    })
}

/// Returns tools that only print their version.
pub(super) fn short(context: &BenchContext) -> Result<Vec<Program>, String> {
    let folder = application(context, None)?;
    let program = |name: &str, title: &str, words: [&'static str; 2]| Program {
        name: name.to_owned(),
        title: title.to_owned(),
        folder: folder.clone(),
        words: words.to_vec(),
        with_spring: Vec::new(),
        environment: Vec::new(),
    };
    Ok(vec![
        program("rubocop", "`rubocop --version`", ["rubocop", "--version"]),
        program("rake", "`rake --version`", ["rake", "--version"]),
        program("irb", "`irb --version`", ["irb", "--version"]),
    ])
}

/// Copies the example application. The boot file of the copy starts bootsnap if the contender uses bootsnap.
fn application(context: &BenchContext, system: Option<&EnteredRoot>) -> Result<PathBuf, String> {
    let original = context.root.join("examples/rails_app");
    let boot = context.root.join("benches/boot/config_boot.rb");
    let tests = context.root.join("benches/boot/rails_test");
    make_folder(context, &name_on(system, "application"), |folder| {
        copy(&original, folder)?;
        copy(&tests, &folder.join("test"))?;
        fs::create_dir_all(folder.join("tmp"))?;
        fs::copy(&boot, folder.join("config/boot.rb")).map(|_| ())
    })
}

pub(super) fn rails(
    context: &BenchContext,
    system: Option<&EnteredRoot>,
) -> Result<Program, String> {
    let original = context.root.join("benches/boot/rails_all");
    let name = name_on(system, "rails");
    Ok(Program {
        title: title_on(system, "Rails: all of it, loaded at once, in production"),
        folder: make_folder(context, &name, |folder| copy(&original, folder))?,
        name,
        words: vec!["ruby", "main.rb"],
        with_spring: Vec::new(),
        environment: Vec::new(),
    })
}

/// Returns Redmine, if it is installed.
pub(super) fn redmine(context: &BenchContext) -> Result<Option<Program>, String> {
    let folder = PathBuf::from(REDMINE);
    if !folder.join("config/environment.rb").is_file() {
        return Ok(None);
    }
    let start = context.root.join("benches/boot/redmine.rb");
    let script = make_folder(context, "redmine", |folder| {
        fs::copy(&start, folder.join("main.rb")).map(|_| ())
    })?;
    Ok(Some(Program {
        name: "redmine".to_owned(),
        title: "Redmine, in production".to_owned(),
        folder,
        words: vec!["ruby", "-e", "load ENV.fetch(\"BENCH_MAIN\")"],
        with_spring: Vec::new(),
        environment: vec![
            ("RAILS_ENV", "production".into()),
            ("BENCH_MAIN", script.join("main.rb").display().to_string()),
        ],
    }))
}

/// The name of a folder for programs of that system. Bundler writes a lock file with the gems of one system.
fn name_on(system: Option<&EnteredRoot>, name: &str) -> String {
    let words = system.map(|system| system.name.to_lowercase().replace(' ', "-"));
    words.map_or_else(|| name.to_owned(), |words| format!("{name}-{words}"))
}

/// The title of a table, with the name of the system if it is not this machine's own.
fn title_on(system: Option<&EnteredRoot>, title: &str) -> String {
    system.map_or_else(|| title.to_owned(), |system| format!("{}: {title}", system.name))
}

/// Creates a folder with the files of `make`, and nothing else.
fn make_folder(
    context: &BenchContext,
    name: &str,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<PathBuf, String> {
    let folder = context.root.join("target/bench/boot").join(name);
    let cleared = match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(&folder),
    };
    let done = cleared.and_then(|()| make(&folder));
    done.map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn features_below(folder: &Path, features: u32, requires: &str, shape: Shape) -> io::Result<()> {
    for (path, text) in (1..=features).map(shape) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    let prelude = "load ENV.fetch(\"BENCH_PRELUDE\")";
    let bases = "$LOAD_PATH.unshift(*Dir[\"#{__dir__}/lib*\"].sort)";
    let main = [prelude, bases, prelude, requires, ""].join("\n");
    fs::write(folder.join("main.rb"), main)
}

/// Copies all files below a folder, except those in an application's own `tmp` and `log`.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if !entry.file_type()?.is_dir() {
            fs::copy(source, target)?;
        } else if entry.file_name() != "tmp" && entry.file_name() != "log" {
            fs::create_dir_all(&target)?;
            copy(&source, &target)?;
        }
    }
    Ok(())
}
