//! `cargo x prove`: long runs of the random tests of boots, templates, mounts and the server, and a comparison of
//! `thruway trace` with strace. CI runs a few cases of each.

mod batch_files;
mod cache;
mod mount_freshness;
mod mount_media;
mod mount_users;
mod policy;
mod queue;
mod trace_advice;
mod trace_counts;
mod trace_place;
mod which;

use std::path::Path;
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::command::PROOF_PROFILE;

/// Run the random tests of the boot, of a mount or of the server for long
#[derive(Debug, Args)]
pub(crate) struct Prove {
    /// Property to prove
    #[arg(value_enum)]
    what: Proof,
    /// Number of cases: programs, boots, damaged packs, documents, sequences of operations, requests, seeds or hours
    #[arg(long, default_value_t = 500)]
    cases: u64,
    /// Seed of the cases
    #[arg(long, default_value_t = 1000)]
    seed: u64,
    /// Ruby to test with; the extension is built for it
    #[arg(long, value_name = "PATH", default_value = "ruby")]
    ruby: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Proof {
    /// Random programs that are edited between runs give the same output with the pack and without
    Trees,
    /// Boots that run while other processes rewrite the pack succeed
    Storm,
    /// A pack with a flipped byte changes no outcome
    Damage,
    /// Random edits between and during look-ups are noticed as each mode promises
    Freshness,
    /// Random YAML and JSON files give the same objects
    Documents,
    /// Random programs that are edited between runs give the same output as forks of a template
    Preload,
    /// Changes behind a mount are visible through the mount
    MountFreshness,
    /// A simulated media server on a mount of three disks loses nothing
    MountMedia,
    /// Ordinary users mount by fusermount3 and in user namespaces; needs root, and fuse3
    MountUsers,
    /// No sequence of operations on a mount gives access that its policy refuses
    Policy,
    /// An application that does anything Ruby allows is served correctly, whatever the collector moves meanwhile
    Torture,
    /// Requests that wait, as many as cases, get every byte while workers are killed, stopped and replaced
    Waits,
    /// No sequence of responses, edits and purges makes the cache serve a stale or foreign page
    Cache,
    /// A simulated server serves as if all workers had one queue
    Queue,
    /// Searches in random folders find what shells, the C library, Go and Python find
    Which,
    /// Arguments of batch files reach them under Wine, and start no other program
    BatchFiles,
    /// Common commands make as many calls under `thruway trace` as under strace
    TraceCounts,
    /// Common commands give the same results with fewer calls once the advice of `thruway trace` is followed
    TraceAdvice,
}

impl Prove {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        if let Proof::MountFreshness = self.what {
            return mount_freshness::prove(root, self.cases, self.seed);
        }
        if let Proof::MountMedia = self.what {
            return mount_media::prove(root, self.cases, self.seed);
        }
        if let Proof::MountUsers = self.what {
            return mount_users::prove(root);
        }
        if let Proof::Policy = self.what {
            return policy::run(root, self.cases, self.seed);
        }
        if let Proof::Cache = self.what {
            return cache::run(root, self.cases, self.seed);
        }
        if let Proof::Queue = self.what {
            return queue::run(root, self.cases, self.seed);
        }
        if let Proof::Which = self.what {
            return which::prove(root, self.cases, self.seed);
        }
        if let Proof::BatchFiles = self.what {
            return batch_files::prove(root, self.cases, self.seed);
        }
        if let Proof::TraceCounts = self.what {
            return trace_counts::prove(root);
        }
        if let Proof::TraceAdvice = self.what {
            return trace_advice::prove(root);
        }
        crate::gem::build(root, self.ruby.as_ref(), PROOF_PROFILE)?;
        let name = self.what.to_possible_value().map(|value| value.get_name().to_owned());
        let test = match self.what {
            Proof::Torture => "gem/test/server/torture_test.rb".to_owned(),
            Proof::Waits => "gem/test/server/chaos_test.rb".to_owned(),
            Proof::Preload => "gem/test/preload/random_test.rb".to_owned(),
            _ => format!("gem/test/boot/{}_test.rb", name.unwrap_or_default()),
        };
        let mut ruby = Command::new(&self.ruby);
        let folder = crate::gem::folder(root, PROOF_PROFILE);
        ruby.current_dir(root).arg("-I").arg(folder.join("gem"));
        ruby.args(["-Igem/lib", "-Igem/test", &test]).env("RUBY", &self.ruby);
        ruby.env("THRUWAY", folder.join("thruway"));
        ruby.env("THRUWAY_CASES", self.cases.to_string());
        ruby.env("THRUWAY_SEED", self.seed.to_string()).env("THRUWAY_PROGRESS", "1");
        crate::command::succeed(&mut ruby)
    }
}
