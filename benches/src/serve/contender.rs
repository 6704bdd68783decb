//! The servers of this machine, and those of other systems in folders.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::server::{Program, SERVERS, Server};
use super::system_root::SystemRoot;
use crate::context::BenchContext;

/// A server that can be started.
#[derive(Debug)]
pub(crate) struct Contender {
    /// The name in tables: with the version if packages have several, and with the system of the server.
    pub(crate) name: &'static str,
    pub(crate) server: &'static Server,
    program: PathBuf,
    /// The system in which the server runs, if not this one.
    root: Option<SystemRoot>,
    /// Folders of this machine that the server needs in its system.
    shown: Vec<PathBuf>,
}

/// Returns all available servers, this machine's first; missing ones are left out, with one line each.
pub(crate) fn contenders(context: &BenchContext) -> Vec<Contender> {
    let all = systems(context).flat_map(|root| SERVERS.iter().map(move |server| (server, root)));
    let wanted = all.filter(|(server, _)| is_wanted(server, &context.servers));
    wanted.filter_map(|(server, root)| Contender::new(context, server, root)).collect()
}

/// This system, and the others that take part.
fn systems(context: &BenchContext) -> impl Iterator<Item = Option<&SystemRoot>> {
    let here = (!context.roots_only).then_some(None);
    here.into_iter().chain(context.roots.iter().map(Some))
}

/// Whether a server takes part: those chosen on the command line and ours, or all if none is chosen.
fn is_wanted(server: &Server, chosen: &[String]) -> bool {
    let is_chosen = |name: &String| server.name.to_lowercase().starts_with(&name.to_lowercase());
    chosen.is_empty() || server.is_ours() || chosen.iter().any(is_chosen)
}

impl Contender {
    /// A server of this machine outside of the usual list, if its program is installed.
    pub(crate) fn of(context: &BenchContext, server: &'static Server) -> Option<Self> {
        Self::new(context, server, None)
    }

    /// Two servers outside of the usual list, in each system that has both.
    pub(crate) fn everywhere(context: &BenchContext, pair: [&'static Server; 2]) -> Vec<[Self; 2]> {
        let both = |root| {
            let [one, other] = pair.map(|server| Self::new(context, server, root));
            Some([one?, other?])
        };
        systems(context).filter_map(both).collect()
    }

    /// Servers outside of the usual list, in each system that has them.
    pub(crate) fn in_all_systems(context: &BenchContext, servers: &[&'static Server]) -> Vec<Self> {
        let in_system =
            |root| servers.iter().filter_map(move |server| Self::new(context, server, root));
        systems(context).flat_map(in_system).collect()
    }

    fn new(
        context: &BenchContext,
        server: &'static Server,
        root: Option<&SystemRoot>,
    ) -> Option<Self> {
        let program = match root {
            None => here(context, server),
            Some(root) => inside(context, server, root)?,
        };
        let program = program.map_err(|reason| println!("left out: {reason}")).ok()?;
        let mut shown = vec![context.root.clone(), std::env::temp_dir()];
        // The gem of a thruway that is built elsewhere is in the checkout around `target/release/thruway`.
        shown.extend(program.ancestors().nth(3).filter(|_| server.is_ours()).map(Path::to_owned));
        let mut contender = Self { name: server.name, server, program, root: root.cloned(), shown };
        contender.name = contender.full_name().leak();
        Some(contender)
    }

    /// Whether the server is thruway.
    pub(crate) fn is_ours(&self) -> bool {
        self.server.is_ours()
    }

    /// The name of the server's system; none for this one.
    pub(crate) fn system(&self) -> Option<&str> {
        self.root.as_ref().map(|root| root.name.as_str())
    }

    /// A command that starts the server in the folder.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        match &self.root {
            Some(root) => {
                let gem = self.program.with_file_name("gem").join("thruway");
                let gem = self.is_ours().then_some(gem.as_path());
                root.command(&self.program, folder, &self.shown, gem)
            }
            None => {
                let mut command = Command::new(&self.program);
                command.current_dir(folder);
                command
            }
        }
    }

    fn full_name(&self) -> String {
        let version = self.server.tells_version.then(|| self.version()).flatten();
        let name = [Some(self.server.name.to_owned()), version].into_iter().flatten();
        let system = self.system().map(|system| format!("on {system}"));
        name.chain(system).collect::<Vec<_>>().join(" ")
    }

    /// The first two numbers of the server's version.
    fn version(&self) -> Option<String> {
        let output = self.command(Path::new("/")).arg("--version").output().ok()?;
        first_version(&String::from_utf8_lossy(&output.stdout))
    }
}

/// The version `8.0` of `puma version 8.0.2 ("…")`.
fn first_version(text: &str) -> Option<String> {
    let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let mut parts = text.split_whitespace().find(is_number)?.split('.');
    Some([parts.next()?, parts.next()?].join("."))
}

/// The program on this machine, or the reason why there is none.
fn here(context: &BenchContext, server: &Server) -> Result<PathBuf, String> {
    match server.program {
        Program::Ours => Ok(ours(context)),
        Program::Installed(name) => {
            on_path(name).ok_or_else(|| format!("{}: {name} is not installed", server.name))
        }
        Program::Peer(name) => context.peers.get(name).cloned().ok_or_else(|| {
            format!("{}: not given; --peer {name}=PATH names its program", server.name)
        }),
    }
}

/// The program in another system. A peer that is not installed there is left out without a line.
fn inside(
    context: &BenchContext,
    server: &Server,
    root: &SystemRoot,
) -> Option<Result<PathBuf, String>> {
    match server.program {
        Program::Ours => Some(Ok(ours(context))),
        Program::Installed(name) => Some(root.installed(name).ok_or_else(|| {
            format!("{}: {name} is not installed in {}", server.name, root.folder.display())
        })),
        Program::Peer(name) => root.installed(name).map(Ok),
    }
}

fn ours(context: &BenchContext) -> PathBuf {
    let other = context.peers.get("thruway").cloned();
    other.unwrap_or_else(|| context.root.join("target/release/thruway"))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Not every PATH has the administrators' folders, where nginx is.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(name)).find(|program| is_file(program))
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_two_numbers() {
        assert_eq!(first_version("puma version 8.0.2 (\"X\")\n").as_deref(), Some("8.0"));
        assert_eq!(first_version("no number"), None);
    }

    #[test]
    fn a_choice_of_servers_always_has_ours() {
        let names = |chosen: &[&str]| -> Vec<&str> {
            let chosen: Vec<_> = chosen.iter().map(|name| (*name).to_owned()).collect();
            let wanted = SERVERS.iter().filter(|server| is_wanted(server, &chosen));
            wanted.map(|server| server.name).collect()
        };
        assert_eq!(names(&["puma", "Unicorn"]), ["thruway", "Puma", "Puma 8", "unicorn"]);
        assert_eq!(names(&[]).len(), SERVERS.len());
    }

    #[test]
    fn a_peer_takes_part_in_the_systems_that_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = SystemRoot { name: "3.3".to_owned(), folder: folder.path().to_owned() };
        let iodine = SERVERS.iter().find(|server| server.name == "iodine").unwrap();
        let program = || inside(&BenchContext::default(), iodine, &root);
        assert_eq!(program(), None);
        std::fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
        std::fs::write(folder.path().join("usr/bin/iodine"), "").unwrap();
        assert_eq!(program(), Some(Ok(PathBuf::from("/usr/bin/iodine"))));
    }
}
