//! The project's own tasks, started as `cargo x TASK`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a task talks to its developer")]

mod aarch64;
mod applications;
mod bench;
mod check;
mod debootstrap;
mod dist;
mod durations;
mod fuzz;
mod gem;
mod gem_tests;
mod headers;
mod instructions;
mod layers;
mod linting;
mod packages;
mod portable;
mod prove;
mod release;
mod rooms;
mod roots;
mod ruby;
mod rubyspec;
mod soak;
mod stress;
mod suites;
mod text;
mod units;
mod windows;
mod windows_boot;
mod windows_ruby;
mod xfstests;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use xtask::{command, debian, root, wine};

/// The project's own tasks
#[derive(Debug, Parser)]
#[command(name = "cargo x")]
struct Tasks {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Check(check::Check),
    Bench(bench::Bench),
    Gem(gem::Gem),
    GemTests(gem_tests::GemTests),
    Dist(dist::Dist),
    Release(release::Release),
    Windows(windows::Windows),
    #[command(name = "windows-ruby")]
    WindowsRuby(windows_ruby::WindowsRubyTask),
    Aarch64(aarch64::Aarch64),
    Packages(packages::Packages),
    Portable(portable::Portable),
    Fuzz(fuzz::Fuzz),
    Soak(soak::Soak),
    Stress(stress::Stress),
    Prove(prove::Prove),
    Root(roots::Root),
    Ruby(ruby::Ruby),
    #[command(name = "rubyspec")]
    RubySpec(rubyspec::RubySpec),
    Suites(suites::Suites),
    #[command(name = "xfstests")]
    XfsTests(xfstests::XfsTests),
    /// Compare every Cargo.toml with the import table in ARCHITECTURE.md
    Layers,
    Text(text::Text),
    Units(units::Units),
    Applications(applications::Applications),
    Instructions(instructions::Instructions),
    /// Show circles of imports, and functions that are too long
    Rooms,
}

fn main() -> ExitCode {
    let done = match Tasks::parse().task {
        Task::Check(check) => check.run(&root()),
        Task::Bench(bench) => bench.run(&root()),
        Task::GemTests(tests) => tests.run(&root()),
        Task::Gem(gem) => gem.run(&root()),
        Task::Dist(dist) => dist.run(&root()),
        Task::Release(release) => release.run(&root()),
        Task::Windows(windows) => windows.run(&root()),
        Task::WindowsRuby(ruby) => ruby.run(&root()),
        Task::Aarch64(aarch64) => aarch64.run(&root()),
        Task::Packages(packages) => packages.run(&root()),
        Task::Portable(portable) => portable.run(&root()),
        Task::Fuzz(fuzz) => fuzz.run(&root()),
        Task::Stress(stress) => stress.run(&root()),
        Task::Soak(soak) => soak.run(&root()),
        Task::Prove(proof) => proof.run(&root()),
        Task::Root(fresh) => fresh.run(&root()),
        Task::Ruby(ruby) => ruby.run(&root()),
        Task::RubySpec(specs) => specs.run(&root()),
        Task::Suites(suites) => suites.run(&root()),
        Task::XfsTests(tests) => tests.run(&root()),
        Task::Text(text) => text.run(&root()),
        Task::Units(units) => units.run(&root()),
        Task::Applications(applications) => applications.run(&root()),
        Task::Rooms => rooms::check(&root()).map_err(|breaches| breaches.join("\n")),
        Task::Instructions(instructions) => instructions.run(&root()),
        Task::Layers => layers::check(&root()).map_err(|breaches| breaches.join("\n")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("cargo x: {message}");
            ExitCode::FAILURE
        }
    }
}
