//! Debian packages: the command, the gem, the manual. Made with dpkg's own programs, and checked by lintian.

use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Builder;
use super::files::{self, copy, copy_tree, named, read, write};
use super::gems;
use super::manual::{self, Shell};
use super::output;
use super::ruby::Ruby;

const UNIT: &str = include_str!("../../../deploy/systemd/thruway@.service");
const COPYRIGHT: &str = include_str!("debian/copyright");
const INTEGRATION: &str = "usr/share/rubygems-integration/all";

/// The fields of a package's `control` file.
struct Package {
    name: &'static str,
    architecture: &'static str,
    section: &'static str,
    summary: &'static str,
    description: &'static str,
    /// The fields about other packages, by name.
    relations: Vec<(&'static str, String)>,
}

/// Builds all three packages.
pub(super) fn packages(builder: &Builder, rubies: &[Ruby]) -> Result<Vec<PathBuf>, String> {
    let ruby = rubies.first().ok_or("the packages need a Ruby")?;
    let program = builder.system_program(ruby)?;
    let made = vec![command(builder, &program)?, gem(builder, rubies)?, pages(builder)?];
    lintian(&made)?;
    Ok(made)
}

fn command(builder: &Builder, program: &Path) -> Result<PathBuf, String> {
    let tree = new_tree(builder, "thruway")?;
    let installed = tree.join("usr/bin/thruway");
    copy(program, &installed, 0o755)?;
    link("../bin/thruway", &tree.join("usr/sbin/mount.thruway"))?;
    write(&tree.join("lib/systemd/system/thruway@.service"), UNIT)?;
    for page in manual::pages(builder.processor, program)? {
        let path = tree.join("usr/share/man/man1").join(&page.name);
        write(&path, page.text)?;
        compress(&path)?;
    }
    link("../man1/thruway-mount.1.gz", &tree.join("usr/share/man/man8/mount.thruway.8.gz"))?;
    for (shell, place) in Shell::PLACES {
        write(
            &tree.join("usr/share").join(place),
            manual::completions(builder.processor, program, shell)?,
        )?;
    }
    let package = Package {
        name: "thruway",
        architecture: builder.processor.debian(),
        section: "utils",
        summary: "from a name to its bytes with no stops",
        description: "Finds the file system work that programs and servers waste between a name and \
                      its bytes, and removes it: traces look-ups, mounts several folders as one, \
                      serves folders and Rack applications, and lets Ruby boot from one pack.",
        relations: vec![
            ("Depends", libraries(builder, &[installed])?),
            ("Recommends", "fuse3".into()),
            ("Suggests", format!("ruby-thruway (= {}), thruway-doc", builder.version)),
        ],
    };
    package.build(builder, &tree)
}

fn gem(builder: &Builder, rubies: &[Ruby]) -> Result<PathBuf, String> {
    let tree = new_tree(builder, "ruby-thruway")?;
    let library = tree.join("usr/lib/thruway");
    copy_tree(&builder.root.join("gem/lib"), &library, &|_| true)?;
    gems::extensions(builder, &library, rubies)?;
    // RubyGems looks for the files of a gem beside its specification.
    let gem = format!("thruway-{}", builder.version);
    link(
        "../../../../../lib/thruway",
        &tree.join(INTEGRATION).join("gems").join(&gem).join("lib"),
    )?;
    let specification = format!("{INTEGRATION}/specifications/{gem}.gemspec");
    write(&tree.join(specification), self::specification(builder, rubies))?;
    let extensions: Vec<_> = rubies
        .iter()
        .map(|ruby| library.join("thruway").join(&ruby.version).join("thruway.so"))
        .collect();
    let package = Package {
        name: "ruby-thruway",
        architecture: builder.processor.debian(),
        section: "ruby",
        summary: "Ruby boots from one pack, and serves Rack applications",
        description: "With require \"thruway/boot\", names, compiled code, YAML and JSON come from one \
                      file. A Rack server gives each client its turn. The command thruway uses this \
                      package for both.",
        relations: vec![
            ("Depends", format!("{}, {}", rubies_wanted(rubies), libraries(builder, &extensions)?)),
            ("Recommends", format!("thruway (= {})", builder.version)),
        ],
    };
    package.build(builder, &tree)
}

fn pages(builder: &Builder) -> Result<PathBuf, String> {
    let tree = new_tree(builder, "thruway-doc")?;
    let folder = tree.join("usr/share/doc/thruway-doc");
    copy_tree(&builder.root.join("docs"), &folder.join("docs"), &|_| true)?;
    for page in ["README.md", "ARCHITECTURE.md"] {
        copy(&builder.root.join(page), &folder.join(page), 0o644)?;
    }
    let package = Package {
        name: "thruway-doc",
        architecture: "all",
        section: "doc",
        summary: "pages of thruway",
        description: "Tutorials, directions, references and explanations of the command thruway and of \
                      its gem, with every published figure and its method.",
        relations: vec![("Suggests", "thruway".into())],
    };
    package.build(builder, &tree)
}

fn new_tree(builder: &Builder, name: &str) -> Result<PathBuf, String> {
    let tree = builder.work("debian").join(name);
    files::empty(&tree)?;
    Ok(tree)
}

fn link(target: &str, path: &Path) -> Result<(), String> {
    write(path, "")?;
    named(path, std::fs::remove_file(path))?;
    named(path, symlink(target, path))
}

/// The gem's specification for RubyGems, without build instructions.
fn specification(builder: &Builder, rubies: &[Ruby]) -> String {
    let newest = rubies.last().map_or("3.1", |ruby| ruby.version.as_str());
    format!(
        "# frozen_string_literal: true\n\n\
         Gem::Specification.new do |spec|\n\
         \x20 spec.name = \"thruway\"\n\
         \x20 spec.version = \"{version}\"\n\
         \x20 spec.summary = \"Ruby boots from one pack, and serves Rack applications\"\n\
         \x20 spec.authors = [\"The Thruway maintainers\"]\n\
         \x20 spec.license = \"MIT\"\n\
         \x20 spec.required_ruby_version = [\">= 3.1\", \"< #{{\"{newest}\".succ}}.dev\"]\n\
         \x20 spec.require_paths = [\"lib\"]\n\
         end\n",
        version = builder.version
    )
}

/// The dependency on Ruby, from the oldest version with an extension to the newest.
fn rubies_wanted(rubies: &[Ruby]) -> String {
    let oldest = rubies.first().map_or("3.1", |ruby| ruby.version.as_str());
    let newest = rubies.last().map_or("3.1", |ruby| ruby.version.as_str());
    format!("ruby (>= 1:{oldest}), ruby (<< 1:{newest}.99)")
}

/// The packages of the libraries with which programs are linked.
fn libraries(builder: &Builder, programs: &[PathBuf]) -> Result<String, String> {
    if builder.processor.is_foreign() {
        return foreign_libraries(programs);
    }
    let folder = builder.work("debian/libraries");
    write(
        &folder.join("debian/control"),
        "Source: thruway\n\nPackage: thruway\nArchitecture: any\n",
    )?;
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    // Libraries that Ruby itself loads are ignored.
    shlibdeps.current_dir(&folder).args(["-O", "--ignore-missing-info", "--warnings=0"]);
    let output = shlibdeps.args(programs).output();
    let output = output.map_err(|error| format!("cannot start dpkg-shlibdeps: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    found.map(str::to_owned).ok_or_else(|| {
        format!("dpkg-shlibdeps says nothing: {}", String::from_utf8_lossy(&output.stderr))
    })
}

/// The dependency on the C library, from the programs' own symbols: dpkg does not know the libraries of another
/// processor.
fn foreign_libraries(programs: &[PathBuf]) -> Result<String, String> {
    let mut objdump = Command::new("aarch64-linux-gnu-objdump");
    let output = objdump.arg("-T").args(programs).output();
    let output = output.map_err(|error| format!("cannot start {objdump:?}: {error}"))?;
    let newest = newest_glibc(&String::from_utf8_lossy(&output.stdout));
    let newest = newest.ok_or_else(|| format!("{objdump:?} names no version of the C library"))?;
    Ok(format!("libc6 (>= {}.{}), libgcc-s1 (>= 4.2)", newest.0, newest.1))
}

/// The newest version of the C library among the symbols in the output of objdump.
fn newest_glibc(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split(|byte: char| byte != '.' && !byte.is_ascii_digit()).next()?;
        let mut numbers = version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

impl Package {
    fn build(&self, builder: &Builder, tree: &Path) -> Result<PathBuf, String> {
        self.add_documents(builder, tree)?;
        let control = self.control(builder, tree)?;
        write(&tree.join("DEBIAN/control"), control)?;
        write(&tree.join("DEBIAN/md5sums"), sums(tree)?)?;
        let name = format!("{}_{}_{}.deb", self.name, builder.version, self.architecture);
        output::finish(builder, &name, |path| {
            let mut deb = Command::new("dpkg-deb");
            deb.args(["--build", "--root-owner-group"]).arg(tree).arg(path);
            deb.stdout(std::process::Stdio::null());
            deb
        })
    }

    fn add_documents(&self, builder: &Builder, tree: &Path) -> Result<(), String> {
        let folder = tree.join("usr/share/doc").join(self.name);
        let licence = read(&builder.root.join("LICENSE"))?;
        let words =
            licence.split_once("\n\nPermission").map_or(licence.as_str(), |(_, words)| words);
        let mut text = COPYRIGHT.replace("REPOSITORY", &builder.repository);
        for line in format!("Permission{words}").trim_end().lines() {
            let line = if line.is_empty() { "." } else { line };
            let _ = writeln!(text, " {line}");
        }
        write(&folder.join("copyright"), text)?;
        let changelog = folder.join("changelog");
        write(&changelog, changes(builder)?)?;
        compress(&changelog)
    }

    fn control(&self, builder: &Builder, tree: &Path) -> Result<String, String> {
        let kilobytes = files::below(tree)?.into_iter().map(|file| {
            file.symlink_metadata().map_or(0, |metadata| metadata.len().div_ceil(1024))
        });
        let kilobytes: u64 = kilobytes.sum();
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {kilobytes}\n",
            self.name, builder.version, self.architecture, builder.maintainer
        );
        for (field, packages) in &self.relations {
            let _ = writeln!(text, "{field}: {packages}");
        }
        let homepage = &builder.homepage;
        let _ = write!(
            text,
            "Section: {}\nPriority: optional\nHomepage: {homepage}\nDescription: {}\n",
            self.section, self.summary
        );
        text.extend(folded(self.description).iter().map(|line| format!(" {line}\n")));
        Ok(text)
    }
}

/// Debian's changelog: the version, and the time of the last change of its sources.
fn changes(builder: &Builder) -> Result<String, String> {
    let mut date = Command::new("date");
    date.args(["--utc", "--rfc-email", "--date"])
        .arg(format!("@{}", output::source_time(builder)?));
    let output = date.output().map_err(|error| format!("cannot start date: {error}"))?;
    let date = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(format!(
        "thruway ({}) unstable; urgency=medium\n\n  * What is new stands in CHANGELOG.md.\n\n -- {}  {date}\n",
        builder.version, builder.maintainer
    ))
}

/// Wraps text to lines of at most 76 characters.
fn folded(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].len() + word.len() > 75 {
            lines.push(word.to_owned());
        } else {
            lines[last] = format!("{} {word}", lines[last]).trim_start().to_owned();
        }
    }
    lines
}

/// Compresses without name and time, so that equal pages give equal bytes.
fn compress(file: &Path) -> Result<(), String> {
    crate::command::succeed(Command::new("gzip").args(["-9nf"]).arg(file))
}

fn sums(tree: &Path) -> Result<String, String> {
    let mut sums = Command::new("md5sum");
    sums.current_dir(tree);
    for file in files::below(tree)? {
        let is_link = file.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        let inside = file.strip_prefix(tree).map_err(|error| error.to_string())?;
        if !is_link && !inside.starts_with("DEBIAN") {
            sums.arg(inside);
        }
    }
    let output = sums.output().map_err(|error| format!("cannot start md5sum: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs lintian, whose errors fail the build.
fn lintian(packages: &[PathBuf]) -> Result<(), String> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error", "--tag-display-limit", "0"]).args(packages);
    match lintian.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("lintian finds errors ({status})")),
        Err(_) => {
            println!("dist: not judged by lintian, because it is not installed");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_the_c_library_is_needed() {
        let symbols = " DF *UND* 0 (GLIBC_2.17) write\n DF *UND* 0 (GLIBC_2.34) open\n\
                       DF *UND* 0 (GLIBC_2.4) read\n DF *UND* 0 (GCC_3.0) _Unwind_Resume\n";
        assert_eq!(newest_glibc(symbols), Some((2, 34)));
        assert_eq!(newest_glibc("no symbols"), None);
    }

    #[test]
    fn a_description_is_folded_between_words() {
        let lines = folded(&"word ".repeat(40));
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= 76), "{lines:?}");
        assert_eq!(lines.join(" ").split(' ').count(), 40);
    }
}
