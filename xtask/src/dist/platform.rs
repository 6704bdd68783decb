//! The processors of the programs, and their names in other systems.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;

use crate::debian;

/// The tools that build for the other processor: one file of each package, and the package.
const CROSS_TOOLS: [(&str, &str); 4] = [
    ("/usr/bin/aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/lib/libc.a", "libc6-dev-arm64-cross"),
    ("/usr/bin/qemu-aarch64-static", "qemu-user-static"),
    ("/usr/bin/dpkg-deb", "dpkg"),
];

/// A processor; the system is Linux with glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Processor {
    /// Built with the compiler of this machine
    #[value(name = "x86-64")]
    X86_64,
    /// Built with Debian's cross compiler, and tried under QEMU
    Aarch64,
}

impl Processor {
    /// Rust's name of the platform.
    pub(super) fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// RubyGems' name of the platform, which is also in the names of archives.
    pub(super) fn platform(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-linux",
            Self::Aarch64 => "aarch64-linux",
        }
    }

    /// Debian's name of the processor.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    pub(super) fn is_foreign(self) -> bool {
        self == Self::Aarch64
    }

    /// Options that make a static program smaller, if the linker supports them.
    pub(super) fn size_flags(self) -> &'static [&'static str] {
        match self {
            // Packed relocations take a fiftieth of the room; the program's own start-up code (glibc 2.36) reads them.
            Self::X86_64 => &["-Clink-arg=-Wl,-z,pack-relative-relocs"],
            // Debian 12's linker packs relocations for x86-64 alone.
            Self::Aarch64 => &[],
        }
    }

    /// Returns the packages that this machine lacks to build for the processor.
    pub(super) fn missing(self) -> Option<String> {
        let tools = debian::missing(&CROSS_TOOLS).filter(|_| self.is_foreign());
        let has_library = crate::aarch64::has_library();
        let library = || debian::missing(&debian::LIBRARY_SOURCES);
        match self {
            Self::X86_64 => None,
            Self::Aarch64 => tools.or_else(|| if has_library { None } else { library() }),
        }
    }

    /// A cargo command with all options for the processor except those of its subcommand.
    pub(super) fn cargo(self, root: &Path, subcommand: &str) -> Command {
        let own_library = self.is_foreign() && !crate::aarch64::has_library();
        let mut cargo =
            if own_library { debian::cargo(root) } else { Command::new(crate::command::cargo()) };
        cargo.current_dir(root).arg(subcommand);
        if own_library {
            cargo.arg("-Zbuild-std=std,panic_unwind");
        }
        if self.is_foreign() {
            let linker = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER";
            cargo.env(linker, "aarch64-linux-gnu-gcc");
        }
        cargo
    }

    /// A command that starts a program of the processor on this machine.
    pub(super) fn start(self, program: impl AsRef<OsStr>) -> Command {
        if !self.is_foreign() {
            return Command::new(program);
        }
        let mut emulator = Command::new("/usr/bin/qemu-aarch64-static");
        // Where the cross compiler's C library is.
        emulator.args(["-L", "/usr/aarch64-linux-gnu"]).arg(program);
        emulator
    }
}
