//! The traced commands.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A command, and the permitted cost of tracing it.
pub(super) struct Workload {
    pub(super) title: &'static str,
    /// The permitted time of the traced command, as a multiple of the untraced one.
    pub(super) slowdown_max: f64,
    /// The number of runs in one measurement: a short command needs several.
    pub(super) runs: u32,
    /// The program and its arguments.
    words: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

/// Returns all workloads; their files are created in `folder`.
pub(super) fn workloads(root: &Path, folder: &Path) -> Result<Vec<Workload>, String> {
    let mut workloads = vec![rails(), gcc(folder)?, shell(folder), pip(root)];
    if Command::new("go").arg("version").output().is_ok() {
        workloads.extend(go(folder)?);
    } else {
        println!("skipped: go is not installed");
    }
    Ok(workloads)
}

impl Workload {
    /// The command under `tracer`, or by itself if `tracer` is empty.
    pub(super) fn command(&self, tracer: &[&str]) -> Command {
        let mut words = tracer.iter().copied().chain(self.words.iter().map(String::as_str));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).env_remove("RUBYOPT").env("LC_ALL", "C.UTF-8");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn rails() -> Workload {
    Workload {
        title: "Ruby, `require \"rails/all\"`",
        slowdown_max: 1.15,
        runs: 1,
        words: words(&["ruby", "-e", "require 'rails/all'"]),
        variables: Vec::new(),
    }
}

/// gcc compiles one file. The file's last header is in the hundredth folder of the search path.
fn gcc(folder: &Path) -> Result<Workload, String> {
    const FOLDERS: usize = 100;
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        let made = file.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&file, text))
            .map_err(|error| format!("{}: {error}", file.display()))
    };
    for number in 0..FOLDERS {
        write(&format!("include/{number}/header{number}.h"), "")?;
    }
    write(&format!("include/{}/deep.h", FOLDERS - 1), "int deep;\n")?;
    let headers = ["stdio", "stdlib", "string", "sys/stat", "unistd", "fcntl", "deep"];
    let lines = headers.map(|header| format!("#include <{header}.h>\n"));
    write("main.c", &lines.concat())?;
    let mut words = words(&["gcc", "-c", "-o", "/dev/null"]);
    words.push(folder.join("main.c").display().to_string());
    words.extend((0..FOLDERS).map(|number| format!("-I{}/include/{number}", folder.display())));
    let title = "`gcc -c` with 100 `-I`";
    Ok(Workload { title, slowdown_max: 1.25, runs: 10, words, variables: Vec::new() })
}

/// `env`, which searches 60 folders each time before it starts `true`.
fn shell(folder: &Path) -> Workload {
    const FOLDERS: usize = 60;
    const SCRIPT: &str = "i=0; while [ $i -lt 200 ]; do env true; i=$((i+1)); done";
    let mut path: String =
        (0..FOLDERS).map(|number| format!("{}/include/{number}:", folder.display())).collect();
    path.push_str(&std::env::var("PATH").unwrap_or_default());
    Workload {
        title: "shell loop, 200 × `env true`, 60 folders before",
        slowdown_max: 2.0,
        runs: 1,
        words: words(&["sh", "-c", SCRIPT]),
        variables: vec![("PATH", path)],
    }
}

/// pip of the Python that `scripts/setup` installs, because Debian's has no pip of its own.
fn pip(root: &Path) -> Workload {
    let python = root.join("target/tools/bin/python").display().to_string();
    let version_check = ("PIP_DISABLE_PIP_VERSION_CHECK", "1".to_owned());
    Workload {
        title: "`pip list`",
        slowdown_max: 1.1,
        runs: 2,
        words: words(&[&python, "-m", "pip", "list"]),
        variables: vec![version_check],
    }
}

/// Go's builder with a complete cache, which only looks at every file, and with a compilation.
fn go(folder: &Path) -> Result<[Workload; 2], String> {
    const PACKAGES: usize = 20;
    const FUNCTIONS: usize = 100;
    let write = |name: &str, text: &str| {
        let file = folder.join("go").join(name);
        let made = file.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&file, text))
            .map_err(|error| format!("{}: {error}", file.display()))
    };
    write("go.mod", "module example.com/many\n")?;
    write("main.go", "package main\n\nfunc main() { println(2) }\n")?;
    for package in 0..PACKAGES {
        let function = |number| {
            format!(
                "func F{number}(a, b int) (s int) {{ for i := a; i < b; i++ {{ s += i * {number} }}; return }}\n"
            )
        };
        let functions: String = (0..FUNCTIONS).map(function).collect();
        write(&format!("parts/p{package}/p.go"), &format!("package p{package}\n{functions}"))?;
    }
    let own = |name: &str| folder.join(name).display().to_string();
    let (source, output) = (own("go"), own("go-program"));
    let workload = |title, arguments: &[&str]| Workload {
        title,
        slowdown_max: 1.3,
        runs: 2,
        words: words(&[&["go", "build", "-C", &source], arguments].concat()),
        variables: vec![
            ("GOCACHE", own("go-cache")),
            ("GOPROXY", "off".to_owned()),
            ("GOTOOLCHAIN", "local".to_owned()),
            ("CGO_ENABLED", "0".to_owned()),
            ("GOFLAGS", "-buildvcs=false".to_owned()),
        ],
    };
    // The packages import nothing: `-a` compiles them, and nothing of Go's own library.
    Ok([
        workload("`go build` of what is built", &["-o", &output, "."]),
        workload("`go build -a` of 20 packages", &["-a", "./parts/..."]),
    ])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
