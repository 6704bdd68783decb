//! What a manual page says besides the arguments: a table a verb.

/// Words, and what they mean.
pub(super) type Rows = &'static [(&'static str, &'static str)];

/// The last sections of a verb's page.
pub(super) struct Sections {
    /// Of the whole command it is empty.
    pub(super) verb: &'static str,
    pub(super) statuses: Rows,
    pub(super) environment: Rows,
    pub(super) files: Rows,
    /// Commands, and what they do.
    pub(super) examples: Rows,
}

const DONE: (&str, &str) = ("0", "done");
const FAILED: (&str, &str) = ("2", "it failed, or the arguments make no sense");
const NO_COLOR: (&str, &str) = ("NO_COLOR", "if it is set and not empty, nothing is coloured");
const PATH: (&str, &str) = ("PATH", "where commands are searched for");
const PACK: (&str, &str) = ("THRUWAY_PACK", "the pack, if no option names it");
const PACKS: (&str, &str) = (
    "tmp/cache/thruway",
    "the packs of an application that has a folder tmp; of others they are in the user's cache",
);

/// The sections of a verb; those of the whole command for a verb that has none.
pub(super) fn of(verb: &str) -> &'static Sections {
    ALL.iter().find(|sections| sections.verb == verb).unwrap_or(&ALL[0])
}

pub(super) const ALL: [Sections; 16] = [
    Sections {
        verb: "",
        statuses: &[
            DONE,
            ("1", "the answer is no: not found, over the budget, less fair than asked, damaged"),
            FAILED,
            ("126, 127", "the command that was to be run cannot be run, or does not exist"),
        ],
        environment: &[NO_COLOR, PATH],
        files: &[],
        examples: &[
            ("thruway doctor", "says what works on this machine"),
            ("thruway trace -- ruby -e 0", "shows what a command asks the file system for in vain"),
            ("thruway serve ~/site", "serves a folder"),
        ],
    },
    Sections {
        verb: "mount",
        statuses: &[
            ("0", "the mount can be used; with status: all mounts are well"),
            (
                "1",
                "with status: a mount does not reply, or a source fails; as mount.thruway: wrong arguments",
            ),
            FAILED,
            ("32", "as mount.thruway: it could not be mounted"),
        ],
        environment: &[NO_COLOR],
        files: &[
            (
                "/etc/fstab",
                "mounts of the type thruway, for which /sbin/mount.thruway is this program",
            ),
            ("/dev/fuse", "the kernel's requests"),
        ],
        examples: &[
            ("thruway mount ~/src /mnt/src", "shows a folder at another place"),
            (
                "thruway mount --frozen /opt/a /opt/b /mnt/both",
                "merges two folders that do not change",
            ),
            ("thruway mount status", "says how the mounts are"),
        ],
    },
    Sections {
        verb: "unmount",
        statuses: &[DONE, FAILED],
        environment: &[NO_COLOR],
        files: &[],
        examples: &[
            ("thruway unmount /mnt/src", "ends a mount"),
            ("thruway unmount --force /mnt/src", "ends one whose programs hang"),
        ],
    },
    Sections {
        verb: "serve",
        statuses: &[("0", "a signal has ended it"), FAILED],
        environment: &[
            (
                "APP_ENV, RACK_ENV, RAILS_ENV",
                "the environment of an application, unless -e says it; the first that is set",
            ),
            PACK,
            ("THRUWAY_BOOT", "how Ruby boots: thruway-run(1); off leaves everything to Ruby"),
            (
                "THRUWAY_BACKTRACE",
                "if it is set, an application that does not load is told in full",
            ),
            ("TMPDIR", "where large bodies wait"),
        ],
        files: &[
            ("config.ru", "makes a folder a Rack application"),
            (
                "config/thruway.rb, config/puma/ENV.rb, config/puma.rb",
                "the configuration; the first that is there",
            ),
            PACKS,
        ],
        examples: &[
            ("thruway serve", "serves the current folder, an application or files"),
            ("thruway serve . -e production -w 2 -t 5", "serves an application with two workers"),
            (
                "thruway serve ~/site --list -p 8000",
                "serves a folder, and lists those without index.html",
            ),
        ],
    },
    Sections {
        verb: "expand",
        statuses: &[DONE, ("2", "a name cannot be expanded; nothing is printed")],
        environment: &[("HOME", "what ~ stands for, with --ruby")],
        files: &[],
        examples: &[
            ("thruway expand ../lib/./a.rb", "makes a name absolute"),
            ("thruway expand --flavour windows 'C:a\\b'", "does so by the rules of Windows"),
        ],
    },
    Sections {
        verb: "trace",
        statuses: &[
            ("0", "the command ended with 0, within the budget"),
            ("1", "it made more calls than the budget allows"),
            FAILED,
            ("126, 127", "the command cannot be run, or does not exist"),
            ("others", "the command's own"),
        ],
        environment: &[PATH, NO_COLOR],
        files: &[],
        examples: &[
            (
                "thruway trace -- bin/rails runner 0",
                "shows what was asked for in vain, and its cure",
            ),
            ("thruway trace --budget 500 -q -- make", "fails if there were more calls: for CI"),
            ("thruway trace --html report.html -- make", "writes a page for the browser"),
        ],
    },
    Sections {
        verb: "which",
        statuses: &[DONE, ("1", "a name is not found"), ("2", "the search failed")],
        environment: &[PATH, ("PATHEXT", "the suffixes that cmd.exe tries")],
        files: &[],
        examples: &[
            ("thruway which --count ruby", "prints the file, and how many look-ups it took"),
            ("thruway which --all python3", "prints every file of the name"),
        ],
    },
    Sections {
        verb: "load",
        statuses: &[
            DONE,
            (
                "1",
                "every answer is an error (4xx or 5xx), or the run is less fair than --fair asks",
            ),
            ("2", "there was no response at all, or the arguments make no sense"),
        ],
        environment: &[NO_COLOR],
        files: &[],
        examples: &[
            ("thruway load http://127.0.0.1:9292/ -c 10 -d 10", "shows each connection's share"),
            (
                "thruway load http://127.0.0.1:9292/ --rate 500 --fair 0.99",
                "fails if shares differ",
            ),
        ],
    },
    Sections {
        verb: "run",
        statuses: &[
            ("126, 127", "the command cannot be run, or does not exist"),
            FAILED,
            ("others", "the command's own, signals included"),
        ],
        environment: &[
            PATH,
            PACK,
            (
                "THRUWAY_BOOT",
                "how Ruby boots: frozen, digest, trust-image, read-only, portable, explain, or off",
            ),
            ("THRUWAY_PRELOAD", "1 is as --preload; 0 forbids it"),
        ],
        files: &[PACKS],
        examples: &[
            ("thruway run -- bin/rails server", "boots Rails from its pack"),
            ("thruway run --explain -- bin/rails runner 0", "says what did not come from it"),
        ],
    },
    Sections {
        verb: "pack",
        statuses: &[
            DONE,
            ("1", "with verify: the pack is damaged"),
            FAILED,
            ("others", "with build: the command's own"),
        ],
        environment: &[PACK],
        files: &[PACKS],
        examples: &[
            ("thruway pack build -o boot.pack -- bin/rails runner 0", "makes a pack of a boot"),
            ("thruway pack verify boot.pack", "reads every byte of it"),
        ],
    },
    Sections {
        verb: "preload",
        statuses: &[DONE, FAILED],
        environment: &[("THRUWAY_PRELOAD", "1 is as thruway run --preload; 0 forbids it")],
        files: &[],
        examples: &[
            ("thruway preload status", "lists the Rubies that wait"),
            ("thruway preload stop", "ends them"),
        ],
    },
    Sections {
        verb: "init",
        statuses: &[DONE, ("2", "a file is not there, or cannot be written")],
        environment: &[],
        files: &[("Gemfile, config/boot.rb", "the files that get a line each")],
        examples: &[
            ("thruway init", "lets the application of this folder boot from a pack"),
            ("thruway init --undo", "takes that back"),
        ],
    },
    Sections {
        verb: "ctl",
        statuses: &[
            DONE,
            ("1", "the server does not run, or cannot be reached"),
            ("2", "it refuses, or the arguments make no sense"),
        ],
        environment: &[],
        files: &[
            ("tmp/state", "what state_path may name: process number, address and token"),
            ("tmp/pids/server.pid", "what pidfile may name: the process number"),
        ],
        examples: &[
            ("thruway ctl -S tmp/state stats", "what the server has counted"),
            ("thruway ctl -P tmp/pids/server.pid restart", "the same listeners, new code"),
        ],
    },
    Sections {
        verb: "doctor",
        statuses: &[
            ("0", "all works, or has something in its place"),
            ("1", "something does not work"),
        ],
        environment: &[PATH],
        files: &[],
        examples: &[
            ("thruway doctor", "a line for each thing, and its cure"),
            ("thruway doctor --json", "the same for programs"),
        ],
    },
    Sections {
        verb: "completions",
        statuses: &[DONE, FAILED],
        environment: &[],
        files: &[],
        examples: &[
            ("thruway completions bash", "for ~/.local/share/bash-completion/completions/thruway"),
            ("thruway completions zsh", "for _thruway in a folder of fpath"),
            ("thruway completions fish", "for ~/.config/fish/completions/thruway.fish"),
        ],
    },
    Sections {
        verb: "man",
        statuses: &[DONE, ("2", "there is no such verb")],
        environment: &[],
        files: &[],
        examples: &[("thruway man serve", "prints a page, which man -l - shows")],
    },
];
