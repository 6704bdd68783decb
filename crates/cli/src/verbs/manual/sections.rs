//! The sections of a manual page after the arguments: a table for each verb.

/// Rows of terms and their meanings.
pub(super) type Rows = &'static [(&'static str, &'static str)];

/// The last sections of a verb's page.
pub(super) struct Sections {
    /// The name of the verb; empty for the whole program.
    pub(super) verb: &'static str,
    pub(super) statuses: Rows,
    pub(super) environment: Rows,
    pub(super) files: Rows,
    /// Example commands and their effects.
    pub(super) examples: Rows,
}

const DONE: (&str, &str) = ("0", "done");
const FAILED: (&str, &str) = ("2", "failure, or wrong arguments");
const NO_COLOR: (&str, &str) = ("NO_COLOR", "if set and not empty, output has no colour");
const PATH: (&str, &str) = ("PATH", "the folders to search for commands");
const PACK: (&str, &str) = ("THRUWAY_PACK", "the pack, unless an option names one");
const PACKS: (&str, &str) = (
    "tmp/cache/thruway",
    "the packs of an application that has a folder tmp; other packs are in the user's cache",
);

/// Returns the sections of a verb, or those of the whole program if the verb has none.
pub(super) fn of(verb: &str) -> &'static Sections {
    ALL.iter().find(|sections| sections.verb == verb).unwrap_or(&ALL[0])
}

pub(super) const ALL: [Sections; 17] = [
    Sections {
        verb: "",
        statuses: &[
            DONE,
            (
                "1",
                "a negative result: not found, over the budget, less fair than required, damaged",
            ),
            FAILED,
            ("3", "this system lacks the verb or the option, which works on Linux only"),
            ("126, 127", "the command cannot be run, or does not exist"),
        ],
        environment: &[NO_COLOR, PATH],
        files: &[],
        examples: &[
            ("thruway doctor", "says what works on this machine"),
            ("thruway trace -- ruby -e 0", "shows the wasted look-ups of a command"),
            ("thruway serve ~/site", "serves a folder"),
        ],
    },
    Sections {
        verb: "mount",
        statuses: &[
            ("0", "the mount is ready for use; with status: all mounts work"),
            (
                "1",
                "with status: a mount does not reply, or a source fails; as mount.thruway: wrong arguments",
            ),
            FAILED,
            ("32", "as mount.thruway: the mount failed"),
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
            ("thruway mount ~/src /mnt/src", "shows a folder at another path"),
            (
                "thruway mount --frozen /opt/a /opt/b /mnt/both",
                "merges two folders that do not change",
            ),
            ("thruway mount status", "shows the state of all mounts"),
        ],
    },
    Sections {
        verb: "unmount",
        statuses: &[DONE, FAILED],
        environment: &[NO_COLOR],
        files: &[],
        examples: &[
            ("thruway unmount /mnt/src", "ends a mount"),
            ("thruway unmount --force /mnt/src", "ends a mount whose programs hang"),
        ],
    },
    Sections {
        verb: "serve",
        statuses: &[("0", "ended by a signal"), FAILED],
        environment: &[
            (
                "APP_ENV, RACK_ENV, RAILS_ENV",
                "the environment of an application, unless -e is given; the first variable that is set counts",
            ),
            PACK,
            ("THRUWAY_BOOT", "how Ruby boots, as in thruway-run(1); off leaves everything to Ruby"),
            (
                "THRUWAY_BACKTRACE",
                "if set, the error of an application that does not load is shown with its whole backtrace",
            ),
            ("TMPDIR", "the folder for large bodies that wait"),
        ],
        files: &[
            ("config.ru", "makes a folder a Rack application"),
            (
                "config/thruway.rb, config/puma/ENV.rb, config/puma.rb",
                "the configuration; the first file that exists is used",
            ),
            PACKS,
        ],
        examples: &[
            ("thruway serve", "serves the current folder, an application or files"),
            ("thruway serve . -e production -w 2 -t 5", "serves an application with two workers"),
            (
                "thruway serve ~/site --list -p 8000",
                "serves a folder, and lists folders without index.html",
            ),
        ],
    },
    Sections {
        verb: "expand",
        statuses: &[DONE, ("2", "a name cannot be expanded; nothing is printed")],
        environment: &[("HOME", "the folder that ~ stands for, with --ruby")],
        files: &[],
        examples: &[
            ("thruway expand ../lib/./a.rb", "makes a name absolute"),
            (
                "thruway expand --flavour windows 'C:a\\b'",
                "makes a name absolute by the rules of Windows",
            ),
        ],
    },
    Sections {
        verb: "trace",
        statuses: &[
            ("0", "the command ended with 0 and within the budget"),
            ("1", "the command made more calls than the budget allows"),
            FAILED,
            ("126, 127", "the command cannot be run, or does not exist"),
            ("others", "the command's own"),
        ],
        environment: &[PATH, NO_COLOR],
        files: &[],
        examples: &[
            (
                "thruway trace -- bin/rails runner 0",
                "shows the wasted look-ups, and how to avoid them",
            ),
            (
                "thruway trace --budget 500 -q -- make",
                "fails if the command made more calls, for CI",
            ),
            ("thruway trace --html report.html -- make", "writes a page for the browser"),
        ],
    },
    Sections {
        verb: "which",
        statuses: &[DONE, ("1", "a name is not found"), ("2", "the search failed")],
        environment: &[PATH, ("PATHEXT", "the suffixes that cmd.exe tries")],
        files: &[],
        examples: &[
            ("thruway which --count ruby", "prints the file and the number of look-ups"),
            ("thruway which --all python3", "prints every file of the name"),
        ],
    },
    Sections {
        verb: "load",
        statuses: &[
            DONE,
            (
                "1",
                "every response is an error (4xx or 5xx), a limit such as --max-p99 is exceeded, or the run is \
                 less fair than --fair requires",
            ),
            ("2", "no response at all, or wrong arguments"),
        ],
        environment: &[NO_COLOR],
        files: &[],
        examples: &[
            ("thruway load http://127.0.0.1:9292/ -c 10 -d 10", "shows each connection's share"),
            (
                "thruway load http://127.0.0.1:9292/ --rate 500 --fair 0.99",
                "fails if the shares of the connections differ",
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
            ("THRUWAY_PRELOAD", "1 has the effect of --preload; 0 forbids preloading"),
        ],
        files: &[PACKS],
        examples: &[
            ("thruway run -- bin/rails server", "boots Rails from its pack"),
            (
                "thruway run --explain -- bin/rails runner 0",
                "lists the files that did not come from the pack",
            ),
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
            ("thruway pack build -o boot.pack -- bin/rails runner 0", "builds a pack from a boot"),
            ("thruway pack verify boot.pack", "checks every byte of the pack"),
        ],
    },
    Sections {
        verb: "preload",
        statuses: &[DONE, FAILED],
        environment: &[(
            "THRUWAY_PRELOAD",
            "1 has the effect of thruway run --preload; 0 forbids preloading",
        )],
        files: &[],
        examples: &[
            ("thruway preload status", "lists the templates"),
            ("thruway preload stop", "ends the templates of this folder's application"),
        ],
    },
    Sections {
        verb: "init",
        statuses: &[DONE, ("2", "a file is missing, or cannot be written")],
        environment: &[],
        files: &[("Gemfile, config/boot.rb", "the files to which a line is added")],
        examples: &[
            ("thruway init", "sets the application in this folder up to boot from a pack"),
            ("thruway init --undo", "undoes that"),
        ],
    },
    Sections {
        verb: "ctl",
        statuses: &[
            DONE,
            ("1", "the server does not run, or cannot be reached"),
            ("2", "the server refused, or wrong arguments"),
        ],
        environment: &[],
        files: &[
            (
                "tmp/state",
                "a file that state_path may name, with process number, address and token",
            ),
            ("tmp/pids/server.pid", "a file that pidfile may name, with the process number"),
        ],
        examples: &[
            ("thruway ctl -S tmp/state stats", "prints the server's statistics"),
            ("thruway ctl -P tmp/pids/server.pid restart", "starts new code on the same listeners"),
        ],
    },
    Sections {
        verb: "certificates",
        statuses: &[
            ("0", "each name has a valid certificate"),
            ("1", "a name has none, or an expired one"),
            FAILED,
        ],
        environment: &[],
        files: &[
            ("storage/thruway", "the certificates of an application that has a folder storage"),
            ("~/.local/state/thruway/certificates", "those of other servers of a user"),
        ],
        examples: &[
            ("thruway certificates", "shows the certificates of this folder's server"),
            ("thruway certificates --json storage/thruway", "prints those of a storage as JSON"),
        ],
    },
    Sections {
        verb: "doctor",
        statuses: &[
            ("0", "everything works, or has a substitute"),
            ("1", "something does not work"),
        ],
        environment: &[PATH],
        files: &[],
        examples: &[
            ("thruway doctor", "prints a line for each check, with the cure"),
            ("thruway doctor --json", "prints the same for programs"),
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
