//! Follows advice on random trees of folders and checks that every name stays the same file.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::super::disk::{Disk, Listing};
use super::super::{Advice, Analysis};
use crate::Outcome;
use crate::call::Call;
use crate::event::{Event, EventKind, Syscall};
use crate::recording::{Header, Sink};

/// The number of random cases of each kind; a case takes a millisecond in a debug build.
const CASES: u64 = 1_000;

/// A deterministic source of pseudo-random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A folder of the tree.
#[derive(Debug, Default, Clone)]
struct TreeFolder {
    /// The file of each name. Two names may be the same file.
    files: BTreeMap<String, u64>,
    is_closed: bool,
}

/// A disk of folders, by path. All other paths are missing.
#[derive(Debug, Default, Clone)]
struct Tree(BTreeMap<String, TreeFolder>);

impl Tree {
    fn new(chance: &mut Chance, folders: u64) -> Self {
        let mut tree = Self::default();
        for number in 0..folders {
            let mut folder = TreeFolder { is_closed: chance.is(12), ..TreeFolder::default() };
            for name in 0..8 {
                if chance.is(25) {
                    folder.files.insert(format!("n{name}"), chance.below(30));
                }
            }
            if !chance.is(10) {
                tree.0.insert(format!("/p/{number}"), folder);
            }
        }
        tree.0.insert(
            "/srv/bin".to_owned(),
            TreeFolder { files: BTreeMap::from([("n1".into(), 77)]), is_closed: false },
        );
        tree
    }

    /// Looks up a path. Returns the file or an error.
    fn ask(&self, path: &str) -> Result<u64, i64> {
        const ENOENT: i64 = -2;
        const EACCES: i64 = -13;
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        let folder = self.0.get(folder).ok_or(ENOENT)?;
        if folder.is_closed {
            return Err(EACCES);
        }
        folder.files.get(name).copied().ok_or(ENOENT)
    }

    /// Returns the first file with this name.
    fn find(&self, folders: &[String], name: &str) -> Option<u64> {
        folders.iter().find_map(|folder| self.ask(&format!("{folder}/{name}")).ok())
    }
}

impl Disk for Tree {
    fn list(&self, folder: &[u8]) -> Listing {
        match self.0.get(str::from_utf8(folder).unwrap()) {
            None => Listing::Missing,
            Some(folder) if folder.is_closed => Listing::Unknown,
            Some(folder) => {
                Listing::Names(folder.files.keys().map(|name| name.clone().into_bytes()).collect())
            }
        }
    }

    fn is_same(&self, one: &[u8], other: &[u8]) -> bool {
        let ask = |path| self.ask(str::from_utf8(path).unwrap()).ok();
        ask(one).is_some_and(|one| ask(other) == Some(one))
    }

    fn has(&self, path: &[u8]) -> bool {
        self.ask(str::from_utf8(path).unwrap()).is_ok()
    }

    fn has_rights(&self, _: &[u8], _: u32) -> bool {
        false
    }

    fn run_path(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// A recording built call by call.
struct FakeRecording(Analysis);

impl FakeRecording {
    fn new(program: &[&str], variables: &[(&str, &str)]) -> Self {
        let text = |text: &&str| (*text).to_owned();
        let variables = variables.iter().map(|(name, value)| (text(name), text(value)));
        let mut recording = Self(Analysis::new(Header {
            command: program.iter().map(text).collect(),
            folder: "/srv".to_owned(),
            variables: variables.collect(),
            machine: "x86_64".to_owned(),
            ..Header::default()
        }));
        recording.push(EventKind::Exec(program.iter().map(|word| word.as_bytes()).collect()));
        recording
    }

    fn push(&mut self, kind: EventKind<'_>) {
        self.0.event(&Event { at_ns: 1, process: 1, thread: 1, kind });
    }

    fn call(&mut self, call: &'static Call, path: &str, result: i64) {
        let names = [path.as_bytes(), b""];
        self.push(EventKind::Syscall(Syscall {
            call,
            duration_ns: 1,
            result,
            flags: 0,
            names,
            stack: None,
        }));
    }

    /// Searches each folder until one has the name.
    fn search(&mut self, tree: &Tree, call: &str, folders: &[String], name: &str) {
        let call = Call::named(call).unwrap();
        for folder in folders {
            let path = format!("{folder}/{name}");
            let answer = tree.ask(&path);
            self.call(call, &path, answer.map_or_else(|error| error, |_| 3));
            if answer.is_ok() {
                return;
            }
        }
    }

    fn advice(mut self, disk: &Tree) -> Vec<Advice> {
        self.0.report(&Outcome::cut_short(1), disk).advice
    }
}

fn absolute(folder: &str) -> String {
    match folder {
        "" => "/srv".to_owned(),
        folder if folder.starts_with('/') => folder.trim_end_matches('/').to_owned(),
        folder => format!("/srv/{folder}"),
    }
}

fn all_absolute(list: &str) -> Vec<String> {
    list.split(':').map(absolute).collect()
}

/// Returns folders in random order, some of them repeated or relative.
fn list(chance: &mut Chance, folders: u64, is_relative: bool) -> String {
    let mut list: Vec<_> = (0..folders).map(|number| format!("/p/{number}")).collect();
    for place in (1..list.len()).rev() {
        list.swap(place, chance.below(place as u64 + 1) as usize);
    }
    if chance.is(20) {
        let again = list[0].clone() + "/";
        list.insert(chance.below(folders) as usize, again);
    }
    if is_relative && chance.is(20) {
        list.insert(chance.below(folders) as usize, "bin".to_owned());
    }
    list.join(":")
}

/// Returns the word as a shell would interpret it.
fn unquoted(word: &str) -> String {
    word.trim_matches('\'').to_owned()
}

fn names() -> impl Iterator<Item = String> {
    (0..8).map(|name| format!("n{name}"))
}

#[test]
fn another_order_of_path_runs_the_same_programs() {
    let (mut followed, mut stayed) = (0, 0);
    for case in 0..CASES {
        let mut chance = Chance(case);
        let folders = 3 + chance.below(5);
        let tree = Tree::new(&mut chance, folders);
        let path = list(&mut chance, folders, true);
        let mut recording = FakeRecording::new(&["sh", "-c", "x"], &[("PATH", &path)]);
        for _ in 0..1 + chance.below(3) {
            let name = format!("n{}", chance.below(9));
            for _ in 0..12 {
                recording.search(&tree, "newfstatat", &all_absolute(&path), &name);
            }
        }
        let advice = recording.advice(&tree);
        let order = advice.iter().find_map(|one| one.how.strip_prefix("export PATH="));
        stayed += usize::from(advice.iter().any(|one| one.note.is_some()));
        let Some(order) = order.map(unquoted) else { continue };
        followed += 1;
        let (before, after) = (all_absolute(&path), all_absolute(&order));
        let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(set(&before), set(&after), "no folder is lost");
        for name in names() {
            let (old, new) = (tree.find(&before, &name), tree.find(&after, &name));
            assert_eq!(old, new, "case {case}: {name} of {path}, then {order}\n{tree:?}");
        }
    }
    assert!(followed > 100 && stayed > 20, "{followed} {stayed}");
}

/// Checks that removing folders from a variable keeps the files that the command looked up.
fn assert_variable_is_safe(variable: &str, program: &[&str], of_name: fn(&str) -> String) {
    let mut followed = 0;
    for case in 0..CASES {
        let mut chance = Chance(case);
        let folders = 4 + chance.below(5);
        let mut tree = Tree::new(&mut chance, folders);
        for folder in tree.0.values_mut() {
            let files = std::mem::take(&mut folder.files);
            folder.files = files.into_iter().map(|(name, file)| (of_name(&name), file)).collect();
        }
        let path = list(&mut chance, folders, true);
        let mut recording = FakeRecording::new(program, &[(variable, &path)]);
        let asked: HashSet<_> =
            (0..1 + chance.below(3)).map(|_| of_name(&format!("n{}", chance.below(9)))).collect();
        for name in &asked {
            for _ in 0..12 {
                recording.search(&tree, "openat", &all_absolute(&path), name);
            }
        }
        let advice = recording.advice(&tree);
        let new = advice.iter().find_map(|one| {
            let (value, _) = one.how.strip_prefix(&format!("{variable}="))?.split_once(' ')?;
            Some(Some(unquoted(value)).filter(|value| !value.is_empty()))
        });
        let Some(new) = new else { continue };
        followed += 1;
        let after = new.as_deref().map(all_absolute).unwrap_or_default();
        for name in &asked {
            let old = tree.find(&all_absolute(&path), name);
            assert_eq!(
                old,
                tree.find(&after, name),
                "case {case}: {name} of {path}, then {after:?}"
            );
        }
    }
    assert!(followed > 100, "{followed}");
}

#[test]
fn a_shorter_library_path_loads_the_same_libraries() {
    assert_variable_is_safe("LD_LIBRARY_PATH", &["prog"], |name| format!("lib{name}.so"));
}

#[test]
fn a_shorter_python_path_imports_the_same_modules() {
    assert_variable_is_safe("PYTHONPATH", &["python3", "-c", "x"], |name| format!("{name}.py"));
}

#[test]
fn a_shorter_class_path_loads_the_same_classes() {
    assert_variable_is_safe("CLASSPATH", &["java", "Main"], |name| format!("{name}.class"));
}

/// Returns the options of `given` that are left after following the advice.
fn followed(how: &str, given: &[String]) -> Option<Vec<String>> {
    let rest = how.strip_prefix("drop ")?;
    if rest.starts_with("all ") {
        return Some(Vec::new());
    }
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let left = |is_left: &dyn Fn(&String) -> bool| {
        given.iter().filter(|one| is_left(one)).cloned().collect()
    };
    if let Some((_, kept)) = rest.split_once("all but ") {
        let kept = words(kept);
        return Some(left(&|one| kept.contains(one)));
    }
    let dropped = words(rest.split_once(": ")?.1);
    Some(left(&|one| !dropped.contains(one)))
}

/// Checks that fewer options of a compiler find the same files in the same order.
fn assert_options_are_safe(form: &str, program: &[&str], of_name: fn(&str) -> String) {
    let mut advised = 0;
    for case in 0..CASES {
        let mut chance = Chance(case);
        let folders = 4 + chance.below(5);
        let mut tree = Tree::new(&mut chance, folders);
        for folder in tree.0.values_mut() {
            let files = std::mem::take(&mut folder.files);
            folder.files = files.into_iter().map(|(name, file)| (of_name(&name), file)).collect();
        }
        let path = list(&mut chance, folders, true);
        let given: Vec<_> = path.split(':').map(|folder| format!("{form}{folder}")).collect();
        let words: Vec<_> =
            program.iter().copied().chain(given.iter().map(String::as_str)).collect();
        let mut recording = FakeRecording::new(&words, &[]);
        let asked: HashSet<_> =
            (0..2 + chance.below(4)).map(|_| of_name(&format!("n{}", chance.below(9)))).collect();
        for name in &asked {
            for _ in 0..6 {
                recording.search(&tree, "openat", &all_absolute(&path), name);
            }
        }
        let advice = recording.advice(&tree);
        let Some(left) = advice.iter().find_map(|one| followed(&one.how, &given)) else { continue };
        advised += 1;
        let after: Vec<_> = left.iter().map(|option| absolute(&option[2..])).collect();
        for name in &asked {
            let old = tree.find(&all_absolute(&path), name);
            assert_eq!(
                old,
                tree.find(&after, name),
                "case {case}: {name} of {path}, then {after:?}"
            );
        }
    }
    assert!(advised > 100, "{advised}");
}

#[test]
fn fewer_include_options_find_the_same_headers() {
    assert_options_are_safe("-I", &["cc1"], |name| format!("{name}.h"));
}

#[test]
fn fewer_library_options_find_the_same_libraries() {
    assert_options_are_safe("-L", &["ld"], |name| format!("lib{name}.so"));
}

#[test]
fn a_folder_that_may_not_be_read_gave_nothing() {
    let mut tree = Tree::default();
    let folder = |is_closed, names: &[&str]| TreeFolder {
        files: names.iter().map(|name| ((*name).to_owned(), 1)).collect(),
        is_closed,
    };
    tree.0.insert("/closed".into(), folder(true, &["job"]));
    tree.0.insert("/empty".into(), folder(false, &[]));
    tree.0.insert("/bin".into(), folder(false, &["job"]));
    let path = "/empty:/closed:/bin";
    let mut recording = FakeRecording::new(&["sh"], &[("PATH", path)]);
    for _ in 0..12 {
        recording.search(&tree, "newfstatat", &all_absolute(path), "job");
    }
    let advice = recording.advice(&tree);
    let order = advice.iter().find(|one| one.how.starts_with("export PATH=")).unwrap();
    // An unreadable folder cannot be compared, so it keeps its place; and it is not moved to the front.
    assert_eq!(order.how, "export PATH=/closed:/bin:/empty");
    assert_eq!(order.note.as_deref(), Some("/closed stays: what is in it cannot be compared"));
}

#[test]
fn a_command_that_was_not_run_stays_the_same() {
    let mut tree = Tree::default();
    let folder = |files: &[(&str, u64)]| TreeFolder {
        files: files.iter().map(|(name, file)| ((*name).to_owned(), *file)).collect(),
        is_closed: false,
    };
    tree.0.insert("/own".into(), folder(&[("deploy", 1)]));
    tree.0.insert("/bin".into(), folder(&[("deploy", 2), ("job", 3)]));
    let mut recording = FakeRecording::new(&["sh"], &[("PATH", "/own:/bin")]);
    for _ in 0..12 {
        recording.search(&tree, "newfstatat", &all_absolute("/own:/bin"), "job");
    }
    assert_eq!(recording.advice(&tree), []);
}

#[test]
fn a_disk_without_what_was_found_is_not_asked() {
    let mut tree = Tree::default();
    tree.0
        .insert("/bin".into(), TreeFolder { files: [("job".into(), 1)].into(), is_closed: false });
    let mut recording = FakeRecording::new(&["sh"], &[("PATH", "/own:/bin")]);
    for _ in 0..12 {
        recording.search(&tree, "newfstatat", &all_absolute("/own:/bin"), "job");
    }
    let report = recording.0.report(&Outcome::cut_short(1), &Tree::default());
    assert_eq!((report.advice, report.is_elsewhere), (Vec::new(), true));
}

/// Simulates programs that look up parts of a locale under each form of its name. At most one form exists.
fn of_locale(variables: &[(&str, &str)], asked: &[(&[&str], Option<&str>)]) -> Vec<String> {
    let mut recording = FakeRecording::new(&["ls"], variables);
    let call = Call::named("openat").unwrap();
    for (forms, there) in asked {
        for part in ["LC_CTYPE", "LC_TIME", "LC_NAME", "LC_PAPER"].repeat(3) {
            for form in *forms {
                let is_there = *there == Some(*form);
                let path = format!("/usr/lib/locale/{form}/{part}");
                recording.call(call, &path, if is_there { 3 } else { -2 });
                if is_there {
                    break;
                }
            }
        }
    }
    let advice = recording.advice(&Tree::default());
    advice.into_iter().map(|one| format!("{}: {}", one.title, one.how)).collect()
}

#[test]
fn a_locale_is_the_same_one_or_is_missing() {
    let forms: &[&str] = &["C.UTF-8", "C.utf8"];
    let installed = "the locale by the name that it is installed under: export";
    assert_eq!(
        of_locale(&[("LANG", "C.UTF-8")], &[(forms, Some("C.utf8"))]),
        [format!("{installed} LANG=C.utf8")]
    );
    let both = [("LANG", "C.UTF-8"), ("LC_ALL", "C.UTF-8")];
    assert_eq!(
        of_locale(&both, &[(forms, Some("C.utf8"))]),
        [format!("{installed} LC_ALL=C.utf8 LANG=C.utf8")]
    );
    let german: &[&str] = &["de_DE.UTF-8", "de_DE.utf8", "de_DE", "de.UTF-8", "de.utf8", "de"];
    // The system is unknown, so there is no command that installs the locale.
    assert_eq!(of_locale(&[("LANG", "de_DE.UTF-8")], &[(german, None)]), [""; 0]);
    let two = [("LANG", "de_DE.UTF-8"), ("LC_CTYPE", "C.UTF-8")];
    assert_eq!(
        of_locale(&two, &[(german, None), (forms, Some("C.utf8"))]),
        [format!("{installed} LC_CTYPE=C.utf8")]
    );
    // One form of the name exists.
    assert_eq!(of_locale(&[("LANG", "de_DE.UTF-8")], &[(german, Some("de"))]), [""; 0]);
}

#[test]
fn a_time_zone_is_set_only_for_processes_that_look_it_up_again() {
    let of_processes = |processes: i32, each: i32| {
        let mut recording = FakeRecording::new(&["sh"], &[]);
        let call = Call::named("newfstatat").unwrap();
        for process in (0..processes).flat_map(|process| (0..each).map(move |_| process)) {
            let kind = EventKind::Syscall(Syscall {
                call,
                duration_ns: 1,
                result: 0,
                flags: 0,
                names: [b"/etc/localtime", b""],
                stack: None,
            });
            recording.0.event(&Event { at_ns: 1, process, thread: process, kind });
        }
        recording.advice(&Tree::default()).into_iter().map(|one| one.saves).collect::<Vec<_>>()
    };
    assert_eq!(of_processes(1, 20), [19]);
    assert_eq!(of_processes(20, 1), [0; 0]);
}

#[test]
fn translations_are_left_out_where_there_is_none() {
    let with = |variables: &[(&str, &str)], result| {
        let mut recording = FakeRecording::new(&["ls"], variables);
        let call = Call::named("openat").unwrap();
        for number in 0..4 {
            for form in ["de_DE.UTF-8", "de_DE", "de"] {
                let path = format!("/usr/share/locale/{form}/LC_MESSAGES/{number}.mo");
                recording.call(call, &path, if form == "de" { result } else { -2 });
            }
        }
        let advice = recording.advice(&Tree::default());
        let advice = advice.into_iter().filter(|one| one.title == "messages without translations");
        advice.map(|one| one.how).collect::<Vec<_>>()
    };
    assert_eq!(with(&[("LANG", "de_DE.UTF-8")], -2), ["LC_MESSAGES=C ls"]);
    assert_eq!(with(&[("LANG", "de_DE.UTF-8")], 3), [""; 0], "there are some");
    let all = [("LANG", "en_GB.UTF-8"), ("LC_ALL", "de_DE.UTF-8"), ("LC_TIME", "C")];
    assert_eq!(with(&all, -2), ["LC_ALL= LC_TIME= LANG=de_DE.UTF-8 LC_MESSAGES=C ls"]);
}
