//! Serves an application by Ruby, which replaces this process.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use thruway_sys::signal::{ignore, number};

use super::options::Serve;
use crate::gem::Gem;
use crate::output::{Answer, Failure};

/// The script that Ruby runs. After the boot has started, files come from the application's pack. If the gem cannot be
/// loaded, the script prints one line with the reason, and a hint.
const START: &str = r#"
begin
  require "thruway/launch/early_signals" unless defined?(Thruway::EarlySignals)
  require "thruway/thruway"
  application = ENV.delete("THRUWAY_APPLICATION")
  Thruway::Boot.start(application) if application
  require "thruway/cli"
rescue LoadError => e
  $stderr.write("thruway: the gem does not load: #{e.message.lines.first.chomp}\n\nhint: #{ENV["THRUWAY_HINT"]}\n")
  exit 2
end
exit Thruway::CLI.run(ARGV)
"#;

/// Hints for a gem that cannot be loaded: beside this binary, and elsewhere.
const BUILD_HINT: &str = "run make build, which puts the gem beside this binary";
const INSTALL_HINT: &str = "install the gem, or use the binary of a checkout after make build";

/// Signals that operators send to a server. This process ignores them, so that they end nothing before Ruby handles
/// them.
const ORDERS: [i32; 7] = [
    number::SIGHUP,
    number::SIGUSR1,
    number::SIGUSR2,
    number::SIGURG,
    number::SIGTTIN,
    number::SIGTTOU,
    number::SIGPWR,
];

/// Replaces this process with Ruby. Returns only on failure.
pub(super) fn run(serve: &Serve, started_us: u64) -> Answer {
    ignore(&ORDERS).map_err(Failure::new)?;
    let beside = gem_in_checkout();
    let (hint, folders) = match beside.is_empty() {
        true => (INSTALL_HINT, gem_of_package()),
        false => (BUILD_HINT, beside),
    };
    let mut ruby = Command::new("ruby");
    // Ruby finds the first file that it loads in this folder.
    let early = folders.last().map(|library| library.join("thruway/early"));
    for folder in early.into_iter().chain(folders) {
        ruby.arg("-I").arg(folder);
    }
    if let Some(folder) = folder_with_pack(&serve.target) {
        ruby.env("THRUWAY_APPLICATION", folder);
    }
    ruby.env("THRUWAY_HINT", hint).args(["-e", START, "--"]).args(arguments(serve, started_us));
    let error = ruby.exec();
    let failure = Failure::new(format_args!("cannot start ruby: {error}"));
    Err(match error.kind() {
        ErrorKind::NotFound => failure.hint("an application needs Ruby 3.1 or later on PATH"),
        _ => failure,
    })
}

/// Returns the application's folder if its pack has a place: the folder's own `tmp`, or the path in `THRUWAY_PACK`. A
/// server writes to no other place unless asked to.
fn folder_with_pack(target: &Path) -> Option<PathBuf> {
    let target = std::path::absolute(target).ok()?;
    let folder = if target.is_dir() { target } else { target.parent()?.to_owned() };
    let has_place = folder.join("tmp").is_dir() || std::env::var_os("THRUWAY_PACK").is_some();
    has_place.then_some(folder)
}

/// Returns the given options in their long form.
fn arguments(serve: &Serve, started_us: u64) -> Vec<OsString> {
    let mut arguments = Vec::new();
    let mut say = |option: &str, value: OsString| {
        arguments.extend([OsString::from(option), value]);
    };
    let number = |number: &dyn ToString| OsString::from(number.to_string());
    say("--started-us", number(&started_us));
    if let Some(port) = serve.port {
        say("--port", number(&port));
    }
    if let Some(fair_by) = &serve.fair_by {
        say("--fair-by", fair_by.to_string().into());
    }
    if let Some(workers) = serve.workers {
        say("--workers", number(&workers));
    }
    let limits = [
        ("--request-line-limit", serve.request_line_limit),
        ("--head-limit", serve.head_limit),
        ("--head-fields-limit", serve.head_fields_limit.map(u32::from)),
        ("--waiting-threads", serve.waiting_threads.map(u32::from)),
        ("--fibers", serve.fibers.map(u32::from)),
    ];
    let sizes = [("--cache", serve.cache), ("--cache-item-limit", serve.cache_item_limit)];
    for (option, size) in sizes.into_iter().filter_map(|(o, size)| Some((o, size?))) {
        say(option, number(&size.0));
    }
    for (option, limit) in limits.into_iter().filter_map(|(o, limit)| Some((o, limit?))) {
        say(option, number(&limit));
    }
    let texts = [("--threads", &serve.threads), ("--environment", &serve.environment)];
    for (option, text) in texts.into_iter().filter_map(|(o, text)| Some((o, text.as_ref()?))) {
        say(option, text.into());
    }
    let paths = [("--config", &serve.config), ("--pidfile", &serve.pidfile)];
    for (option, path) in paths.into_iter().filter_map(|(o, path)| Some((o, path.as_ref()?))) {
        say(option, path.into());
    }
    // The command line as typed, for a hot restart to run again.
    std::env::args_os().for_each(|word| say("--command", word));
    if let Some(uri) = &serve.metrics {
        say("--metrics", uri.into());
    }
    serve.bind.iter().for_each(|uri| say("--bind", uri.into()));
    serve.sendfile.iter().for_each(|folder| say("--sendfile", folder.into()));
    arguments.extend(serve.acme.words());
    if let Ok(program) = std::env::current_exe() {
        arguments.extend(["--program".into(), program.into_os_string()]);
    }
    if serve.status {
        arguments.push("--status".into());
    }
    if serve.no_http2 {
        arguments.push("--no-http2".into());
    }
    arguments.extend(["--".into(), serve.target.clone().into_os_string()]);
    arguments
}

/// Returns the gem's two folders in the checkout in which this binary was built, or no folders outside a checkout. The
/// extension need not be built.
fn gem_in_checkout() -> Vec<PathBuf> {
    let Ok(binary) = std::env::current_exe() else { return Vec::new() };
    let Some(profile) = binary.parent() else { return Vec::new() };
    let library = profile.parent().and_then(Path::parent).map(|root| root.join("gem/lib"));
    match library {
        Some(library) if library.join("thruway/cli.rb").metadata().is_ok() => {
            vec![profile.join("gem"), library]
        }
        _ => Vec::new(),
    }
}

/// Returns the folders of the gem in the package or gem to which this binary belongs, or no folders elsewhere.
fn gem_of_package() -> Vec<PathBuf> {
    let gem = Gem::around_this_program();
    gem.iter().flat_map(Gem::load_path).map(Path::to_owned).collect()
}
