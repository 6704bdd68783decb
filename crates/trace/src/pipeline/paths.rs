//! Makes the names in calls absolute, by following the working directory and descriptors of every process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use hashbrown::DefaultHashBuilder;
use thruway_resolve::{Flavour, expand};

use crate::call::{Argument, Call, CallKind};
use crate::event::{EventKind, Syscall};
use crate::record::{Calls, FIELD_END, Notice, Subject, View};
use crate::tracer::flag;

/// `AT_FDCWD`: the working directory in place of a descriptor.
const CURRENT_FOLDER: i32 = -100;

/// The folders from which the names of a process are resolved.
#[derive(Debug, Clone)]
struct ProcessFolders {
    current: Rc<[u8]>,
    /// The root of the process; empty for the real root.
    root: Rc<[u8]>,
}

/// The name by which each descriptor was opened.
pub(crate) type Descriptors = HashMap<i32, Rc<[u8]>, DefaultHashBuilder>;

/// The state of a thread on which names depend.
#[derive(Debug, Clone)]
struct ThreadPaths {
    process: i32,
    folder: Rc<RefCell<ProcessFolders>>,
    descriptors: Rc<RefCell<Descriptors>>,
}

/// The state of all threads.
#[derive(Debug)]
pub(crate) struct PathTracker {
    contexts: HashMap<i32, ThreadPaths, DefaultHashBuilder>,
    initial: ThreadPaths,
    /// The names of the current call.
    names: [Vec<u8>; 2],
}

impl PathTracker {
    /// Creates a tracker for a command that starts in `folder` with the given descriptors open.
    pub(crate) fn new(folder: &[u8], descriptors: Descriptors) -> Self {
        let folder = ProcessFolders { current: folder.into(), root: Rc::default() };
        let initial = ThreadPaths {
            process: 0,
            folder: Rc::new(RefCell::new(folder)),
            descriptors: Rc::new(RefCell::new(descriptors)),
        };
        Self { contexts: HashMap::default(), initial, names: [Vec::new(), Vec::new()] }
    }

    /// Adds a process that was attached to, which is in `folder` and has these descriptors open.
    pub(crate) fn adopt(&mut self, process: i32, folder: &[u8], descriptors: Descriptors) {
        let Self { initial, .. } = Self::new(folder, descriptors);
        self.contexts.insert(process, ThreadPaths { process, ..initial });
    }

    /// Processes the next record; records must come in the order in which the calls ended. Returns the
    /// process and its event, unless the record is damaged.
    pub(crate) fn push<'a>(
        &'a mut self,
        calls: &Calls,
        view: View<'a>,
        duration_ns: u64,
    ) -> Option<(i32, EventKind<'a>)> {
        let call = match calls.subject(view.number())? {
            Subject::Notice(notice) => return self.notice(notice, view),
            Subject::Call(call) => call,
        };
        let context = self.context(view.thread());
        self.resolve(&context, call, view);
        self.apply(&context, call, view);
        let syscall = Syscall {
            call,
            duration_ns,
            result: view.result(),
            flags: call.flags_at().map_or(0, |at| view.argument(at)),
            names: [&self.names[0], &self.names[1]],
            stack: None,
        };
        Some((context.process, EventKind::Syscall(syscall)))
    }

    fn context(&mut self, thread: i32) -> ThreadPaths {
        let initial = &self.initial;
        let new = || ThreadPaths { process: thread, ..initial.clone() };
        self.contexts.entry(thread).or_insert_with(new).clone()
    }

    fn notice<'a>(&mut self, notice: Notice, view: View<'a>) -> Option<(i32, EventKind<'a>)> {
        let thread = view.thread();
        let mut context = self.context(thread);
        let process = context.process;
        let event = match notice {
            // Those of stacks are no events.
            Notice::Frame | Notice::Stack | Notice::Asked => return None,
            Notice::Fork => {
                let (child, flags) = (view.argument(0).cast_signed(), view.argument(1));
                self.contexts.insert(child, context.child(child, flags));
                (process, EventKind::Spawn { child, is_thread: flags & flag::IS_THREAD != 0 })
            }
            Notice::Exit => {
                self.contexts.remove(&thread);
                (process, EventKind::Exit)
            }
            Notice::Program => {
                context = self.context(view.argument(0).cast_signed());
                self.contexts.remove(&view.argument(0).cast_signed());
                // `execve` ends the sharing of descriptors.
                context.descriptors = copy(&context.descriptors);
                context.process = thread;
                self.contexts.insert(thread, context);
                (thread, EventKind::Exec(words(view)))
            }
        };
        Some(event)
    }

    /// Stores the absolute names of a call in `self.names`.
    fn resolve(&mut self, context: &ThreadPaths, call: &'static Call, view: View<'_>) {
        self.names.iter_mut().for_each(Vec::clear);
        for (name, (argument, asked)) in self.names.iter_mut().zip(view.names_of(call)) {
            let descriptor = match argument {
                Argument::At(descriptor, _) => view.argument(descriptor).cast_signed(),
                Argument::Plain(_) | Argument::None => CURRENT_FOLDER,
            };
            context.absolute(descriptor, asked, name);
        }
    }

    /// Applies the effects of a call on later names.
    fn apply(&mut self, context: &ThreadPaths, call: &'static Call, view: View<'_>) {
        let Some(result) = i32::try_from(view.result()).ok().filter(|result| *result >= 0) else {
            return;
        };
        let first = view.argument(0).cast_signed();
        match call.kind {
            CallKind::Open => context.opened(result, self.names[0].as_slice().into()),
            CallKind::Duplicate => context.duplicated(first, result),
            CallKind::ChangeDirectory if call.names[0] == Argument::None => {
                let path = context.descriptors.borrow().get(&first).cloned();
                context.folder.borrow_mut().move_to(path);
            }
            CallKind::ChangeDirectory => {
                let path = expand(Flavour::Posix, &self.names[0], b"/");
                context.folder.borrow_mut().move_to(Some(path.into()));
            }
            CallKind::ChangeRoot => {
                let path = expand(Flavour::Posix, &self.names[0], b"/");
                context.folder.borrow_mut().root = path.into();
            }
            CallKind::Unshare if call.name == "unshare" => {
                let own = context.child(context.process, !view.argument(0));
                self.contexts.insert(view.thread(), own);
            }
            _ => {}
        }
    }
}

impl ThreadPaths {
    /// Returns the state of a child that was created with the given `clone` flags.
    fn child(&self, id: i32, flags: u32) -> Self {
        let has = |flag| flags & flag != 0;
        Self {
            process: if has(flag::IS_THREAD) { self.process } else { id },
            folder: if has(flag::SHARES_FOLDER) {
                Rc::clone(&self.folder)
            } else {
                copy(&self.folder)
            },
            descriptors: if has(flag::SHARES_DESCRIPTORS) {
                Rc::clone(&self.descriptors)
            } else {
                copy(&self.descriptors)
            },
        }
    }

    fn opened(&self, descriptor: i32, path: Rc<[u8]>) {
        self.descriptors.borrow_mut().insert(descriptor, path);
    }

    fn duplicated(&self, from: i32, to: i32) {
        let mut descriptors = self.descriptors.borrow_mut();
        match descriptors.get(&from).cloned() {
            Some(path) => descriptors.insert(to, path),
            None => descriptors.remove(&to),
        };
    }

    /// Writes the absolute form of `asked` to `name`. `..` is kept, because the component before it may be a
    /// link.
    fn absolute(&self, descriptor: i32, asked: &[u8], name: &mut Vec<u8>) {
        if asked.is_empty() {
            return;
        }
        let folder = self.folder.borrow();
        if asked[0] == b'/' {
            name.extend_from_slice(&folder.root);
        } else if descriptor == CURRENT_FOLDER {
            name.extend_from_slice(&folder.current);
        } else if let Some(path) = self.descriptors.borrow().get(&descriptor) {
            name.extend_from_slice(path);
        } else {
            // The kernel's own name for the descriptor.
            name.extend_from_slice(format!("/proc/{}/fd/{descriptor}", self.process).as_bytes());
        }
        append(name, asked);
    }
}

/// Appends a name to a folder's path, without empty components and dots.
fn append(name: &mut Vec<u8>, asked: &[u8]) {
    if is_plain(asked) {
        match (name.last() == Some(&b'/'), asked[0] == b'/') {
            (true, true) => drop(name.pop()),
            (false, false) => name.push(b'/'),
            _ => {}
        }
        name.extend_from_slice(asked);
        return;
    }
    for component in asked.split(|byte| *byte == b'/') {
        if !matches!(component, b"" | b".") {
            if name.last() != Some(&b'/') {
                name.push(b'/');
            }
            name.extend_from_slice(component);
        }
    }
    if name.is_empty() {
        name.push(b'/');
    }
}

/// Whether a path certainly has no empty component and no single dot. The loop does not stop at the first
/// match, so that the compiler can vectorize it.
fn is_plain(path: &[u8]) -> bool {
    let is_suspect = |(byte, next): (&u8, &u8)| *byte == b'/' && matches!(next, b'/' | b'.');
    let is_any = |any, pair| any | is_suspect(pair);
    path[0] != b'.' && !path.ends_with(b"/") && !path.iter().zip(&path[1..]).fold(false, is_any)
}

impl ProcessFolders {
    fn move_to(&mut self, path: Option<Rc<[u8]>>) {
        if let Some(path) = path {
            self.current = path;
        }
    }
}

/// Returns the arguments of a program, which are joined in one name.
fn words(view: View<'_>) -> Vec<&[u8]> {
    let joined = view.names().next().unwrap_or_default();
    if joined.is_empty() { Vec::new() } else { joined.split(|byte| *byte == FIELD_END).collect() }
}

fn copy<T: Clone>(shared: &Rc<RefCell<T>>) -> Rc<RefCell<T>> {
    Rc::new(RefCell::new(shared.borrow().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Numbers;
    use crate::record::{self, Record};

    /// Feeds records to a tracker and returns the names of the last call.
    struct Player {
        paths: PathTracker,
        calls: Calls,
    }

    impl Player {
        fn new() -> Self {
            let inherited = [(9, Rc::from(b"/inherited".as_slice()))].into_iter().collect();
            Self { paths: PathTracker::new(b"/home", inherited), calls: Calls::new() }
        }

        fn record(&mut self, record: &Record) -> [String; 2] {
            let bytes = record.bytes();
            match self.paths.push(&self.calls, View::new(&bytes).unwrap(), 0) {
                Some((_, EventKind::Syscall(syscall))) => {
                    syscall.names.map(|name| String::from_utf8(name.to_vec()).unwrap())
                }
                _ => Default::default(),
            }
        }

        fn calls(
            &mut self,
            thread: i32,
            name: &str,
            arguments: [i32; 4],
            names: &[&str],
            result: i64,
        ) -> [String; 2] {
            let numbers = Numbers::new(crate::call::Abi::Native);
            let (number, _) = numbers.iter().find(|(_, call)| call.name == name).unwrap();
            let mut list = names.iter().map(|name| name.as_bytes().to_vec());
            self.record(&Record {
                number: record::number(crate::call::Abi::Native, number),
                thread,
                started: 1,
                ended: 2,
                result,
                arguments: arguments.map(i32::cast_unsigned),
                names: [list.next().unwrap_or_default(), list.next().unwrap_or_default()],
            })
        }

        /// Returns the absolute form of `name` for a thread, relative to its working directory.
        fn here(&mut self, thread: i32, name: &str) -> String {
            self.calls(thread, "openat", [CURRENT_FOLDER, 0, 0, 0], &[name], -2)[0].clone()
        }

        /// Like `here`, relative to a descriptor.
        fn at(&mut self, thread: i32, descriptor: i32, name: &str) -> String {
            self.calls(thread, "openat", [descriptor, 0, 0, 0], &[name], -2)[0].clone()
        }

        fn fork(&mut self, thread: i32, child: i32, flags: u32) {
            self.record(&Record::notice(Notice::Fork, thread, 3, [child.unsigned_abs(), flags]));
        }

        fn open(&mut self, thread: i32, name: &str, descriptor: i64) {
            self.calls(thread, "openat", [CURRENT_FOLDER, 0, 0, 0], &[name], descriptor);
        }

        fn chdir(&mut self, thread: i32, name: &str) {
            self.calls(thread, "chdir", [0; 4], &[name], 0);
        }
    }

    #[test]
    fn relative_names_start_at_the_current_folder() {
        let mut player = Player::new();
        assert_eq!(player.here(1, "a//./b/"), "/home/a/b");
        assert_eq!(player.here(1, "/x/../y"), "/x/../y");
        assert_eq!(player.here(1, "/"), "/");
        assert_eq!(player.here(1, "."), "/home");
    }

    #[test]
    fn chdir_and_fchdir_move_the_whole_process() {
        let mut player = Player::new();
        player.chdir(1, "sub/dir");
        assert_eq!(player.here(1, "a"), "/home/sub/dir/a");
        player.chdir(1, "..");
        assert_eq!(player.here(1, "a"), "/home/sub/a");
        player.open(1, "/srv", 4);
        player.calls(1, "fchdir", [4, 0, 0, 0], &[], 0);
        assert_eq!(player.here(1, "a"), "/srv/a");
        player.calls(1, "chdir", [0; 4], &["/nowhere"], -2);
        assert_eq!(player.here(1, "a"), "/srv/a");
    }

    #[test]
    fn a_descriptor_stands_for_what_it_was_opened_on() {
        let mut player = Player::new();
        player.open(1, "folder", 5);
        assert_eq!(player.at(1, 5, "a"), "/home/folder/a");
        assert_eq!(player.at(1, 5, "/b"), "/b");
        assert_eq!(player.at(1, 9, "a"), "/inherited/a");
        assert_eq!(player.at(1, 77, "a"), "/proc/1/fd/77/a");
    }

    #[test]
    fn duplicates_stand_for_the_same_folder() {
        let mut player = Player::new();
        player.open(1, "folder", 5);
        player.calls(1, "dup", [5, 0, 0, 0], &[], 6);
        player.calls(1, "fcntl", [6, 1030, 10, 0], &[], 10);
        assert_eq!(player.at(1, 10, "a"), "/home/folder/a");
        // A descriptor that was never opened by name takes over the number.
        player.calls(1, "dup3", [40, 10, 0, 0], &[], 10);
        assert_eq!(player.at(1, 10, "a"), "/proc/1/fd/10/a");
    }

    #[test]
    fn an_empty_name_asks_about_a_descriptor() {
        let mut player = Player::new();
        let names = player.calls(1, "newfstatat", [3, 0, 0, 0x1000], &[""], 0);
        assert_eq!(names, ["", ""]);
    }

    #[test]
    fn a_forked_child_has_its_own_folder_and_descriptors() {
        let mut player = Player::new();
        player.open(1, "folder", 5);
        player.fork(1, 2, 0);
        player.chdir(2, "/child");
        player.open(2, "/other", 5);
        assert_eq!(player.here(1, "a"), "/home/a");
        assert_eq!(player.at(1, 5, "a"), "/home/folder/a");
        assert_eq!(player.here(2, "a"), "/child/a");
        assert_eq!(player.at(2, 5, "a"), "/other/a");
    }

    #[test]
    fn threads_share_what_clone_says() {
        let mut player = Player::new();
        let thread = flag::IS_THREAD | flag::SHARES_FOLDER | flag::SHARES_DESCRIPTORS;
        player.fork(1, 2, thread);
        player.chdir(2, "/moved");
        player.open(2, "folder", 5);
        assert_eq!(player.here(1, "a"), "/moved/a");
        assert_eq!(player.at(1, 5, "a"), "/moved/folder/a");
        player.calls(2, "unshare", [flag::SHARES_FOLDER.cast_signed(), 0, 0, 0], &[], 0);
        player.chdir(2, "/alone");
        assert_eq!(player.here(1, "a"), "/moved/a");
        assert_eq!(player.here(2, "a"), "/alone/a");
        player.open(2, "/still/shared", 6);
        assert_eq!(player.at(1, 6, "a"), "/still/shared/a");
    }

    #[test]
    fn a_new_program_keeps_folder_and_descriptors_and_takes_the_process_over() {
        let mut player = Player::new();
        let thread = flag::IS_THREAD | flag::SHARES_FOLDER | flag::SHARES_DESCRIPTORS;
        player.fork(1, 2, thread);
        player.open(2, "folder", 5);
        player.record(&Record::notice(Notice::Program, 1, 4, [2, 0]));
        assert_eq!(player.at(1, 5, "a"), "/home/folder/a");
        assert_eq!(player.at(1, 6, "a"), "/proc/1/fd/6/a");
    }

    #[test]
    fn two_names_have_two_folders() {
        let mut player = Player::new();
        player.open(1, "/from", 5);
        player.open(1, "/to", 6);
        let names = player.calls(1, "renameat2", [5, 0, 6, 0], &["a", "b"], 0);
        assert_eq!(names, ["/from/a", "/to/b"]);
    }

    #[test]
    fn names_in_a_changed_root_include_the_root() {
        let mut player = Player::new();
        player.calls(1, "chroot", [0; 4], &["/jail/"], 0);
        assert_eq!(player.here(1, "/etc"), "/jail/etc");
    }
}
