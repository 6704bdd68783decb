//! Formats stacks for people.

use thruway_trace::Frame;
use thruway_trace::analysis::StackCount;

/// Libraries through which programs make their calls. Their functions tell little about the caller.
const PLUMBING: [&str; 4] = ["libc.", "libc-", "ld-", "libpthread"];

/// Returns the function, and its line or else its library.
pub(super) fn frame_text(frame: &Frame) -> String {
    let Frame { function, file, line, object } = frame;
    let name = if function.is_empty() { "?" } else { function };
    match (file.as_str(), line) {
        ("", _) if object.is_empty() => name.to_owned(),
        ("", _) => format!("{name} ({})", base_name(object)),
        (file, 0) => format!("{name} {file}"),
        (file, line) => format!("{name} {file}:{line}"),
    }
}

/// Returns the frames from the caller outwards, without the functions of the C library.
pub(super) fn asking_frames(count: &StackCount) -> &[Frame] {
    let is_plumbing = |frame: &Frame| {
        let name = base_name(&frame.object);
        PLUMBING.iter().any(|library| name.starts_with(library))
    };
    let first = count.frames.iter().position(|frame| !is_plumbing(frame));
    &count.frames[first.unwrap_or(0)..]
}

/// Returns the interpreters whose scripts have no frames although the scripts asked for files.
pub(super) fn unread_interpreters(stacks: &[StackCount]) -> Vec<&str> {
    const NAMES: [&str; 6] = ["ruby", "libruby", "python", "libpython", "perl", "node"];
    let frames = || stacks.iter().flat_map(|stack| &stack.frames);
    if frames().any(|frame| frame.object.is_empty() && !frame.file.is_empty()) {
        return Vec::new();
    }
    let names = frames().map(|frame| base_name(&frame.object));
    let names = names.filter(|name| NAMES.iter().any(|known| name.starts_with(known)));
    names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, line: u32, object: &str) -> Frame {
        Frame {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
            object: object.to_owned(),
        }
    }

    #[test]
    fn a_frame_is_its_function_with_the_line_or_the_library() {
        assert_eq!(frame_text(&frame("find", "a.c", 3, "/bin/a")), "find a.c:3");
        assert_eq!(frame_text(&frame("find", "a.c", 0, "/bin/a")), "find a.c");
        assert_eq!(frame_text(&frame("open", "", 0, "/lib/libc.so.6")), "open (libc.so.6)");
        assert_eq!(frame_text(&frame("", "", 0, "")), "?");
    }

    #[test]
    fn an_interpreter_is_named_if_no_script_has_frames() {
        let count =
            |frames| StackCount { asked: 1, missed: 0, opened: 0, name: String::new(), frames };
        let python = count(vec![frame("f", "", 0, "/usr/bin/python3.11")]);
        let script = count(vec![frame("f", "a.rb", 3, "")]);
        assert_eq!(unread_interpreters(&[python.clone(), python.clone()]), ["python3.11"]);
        assert!(unread_interpreters(&[python, script]).is_empty());
        assert!(unread_interpreters(&[count(vec![frame("f", "", 0, "/bin/ls")])]).is_empty());
    }

    #[test]
    fn the_c_library_does_not_ask() {
        let frames = vec![frame("open", "", 0, "/lib/libc.so.6"), frame("find", "", 0, "/bin/a")];
        let count = StackCount { asked: 1, missed: 0, opened: 0, name: String::new(), frames };
        assert_eq!(asking_frames(&count)[0].function, "find");
        let alone = StackCount { frames: vec![frame("f", "", 0, "/lib/ld-linux.so.2")], ..count };
        assert_eq!(asking_frames(&alone)[0].function, "f");
    }
}
