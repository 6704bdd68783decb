//! The Rubies for which the extension is built.
//!
//! A build asks its Ruby for the folder of headers and for its version. For a Ruby in the root folder of another
//! Debian, a small stand-in program answers: no program of that root is started.

use std::fs;
use std::path::{Path, PathBuf};

use super::files;

/// A Ruby for which the extension is built.
#[derive(Debug)]
pub(super) struct Ruby {
    pub(super) program: PathBuf,
    /// The version, such as `3.1`.
    pub(super) version: String,
}

impl Ruby {
    pub(super) fn of_program(program: &Path) -> Result<Self, String> {
        let version = crate::gem::ruby_version(program.as_os_str())?;
        Ok(Self { program: program.to_owned(), version })
    }

    /// The newest Ruby in a root folder; its stand-in is written to `folder`.
    pub(super) fn of_root(root: &Path, folder: &Path) -> Result<Self, String> {
        let root = files::named(root, std::path::absolute(root))?;
        let settings = settings_of(&root)?;
        let api = settings.parent().and_then(Path::file_name).ok_or("a Ruby without a version")?;
        let stand_in = folder.join(api);
        files::write(&stand_in.join("rbconfig.rb"), stand_in_settings(&settings))?;
        let program = stand_in.join("ruby");
        let quoted = stand_in.display().to_string().replace('\'', r"'\''");
        files::write_program(
            &program,
            format!("#!/bin/sh\nexec ruby '-I{quoted}' -rrbconfig \"$@\"\n"),
        )?;
        Self::of_program(&program)
    }
}

/// The `rbconfig.rb` of the newest Ruby in a root.
fn settings_of(root: &Path) -> Result<PathBuf, String> {
    let platforms = files::folders(&root.join("usr/lib"));
    let versions = platforms.iter().flat_map(|platform| files::folders(&platform.join("ruby")));
    let mut settings: Vec<_> = versions.map(|version| version.join("rbconfig.rb")).collect();
    settings.retain(|file| fs::metadata(file).is_ok());
    settings.sort_by_key(|file| file.parent().map(Path::to_owned));
    settings.pop().ok_or_else(|| format!("{} holds no Ruby of Debian's", root.display()))
}

/// A script with the settings of Ruby itself. Paths are relative to the place of the file, so they lead into the root.
fn stand_in_settings(settings: &Path) -> String {
    let settings = settings.display().to_string().replace('\\', r"\\").replace('\'', r"\'");
    format!(
        "# frozen_string_literal: true\n\n\
         file = '{settings}'\n\
         text = File.read(file)\n\
         version = text[/ruby lib version \\((\\d+\\.\\d+\\.\\d+)\\)/, 1]\n\
         Object.send(:remove_const, :RUBY_VERSION)\n\
         RUBY_VERSION = version\n\
         eval(text, TOPLEVEL_BINDING, file)\n"
    )
}
