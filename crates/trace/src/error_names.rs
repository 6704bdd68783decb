//! The names of the system's error numbers.

use nix::errno::Errno;

/// The highest error number that a system call returns to a program.
const LAST: i32 = 133;

/// Names that mean the same number as another one.
const ALIASES: [(&str, Errno); 3] =
    [("EWOULDBLOCK", Errno::EAGAIN), ("EDEADLOCK", Errno::EDEADLK), ("ENOTSUP", Errno::EOPNOTSUPP)];

/// Returns the name of an error number, such as `ENOENT`; `None` if the number has no name.
#[must_use]
pub fn error_name(number: i32) -> Option<String> {
    let error = Errno::from_raw(number);
    (error != Errno::UnknownErrno).then(|| format!("{error:?}"))
}

/// Returns the number of an error with this name.
pub(crate) fn error_number(name: &str) -> Option<i32> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let named = || (1..=LAST).find(|number| error_name(*number).as_deref() == Some(name));
    alias.map(|(_, error)| *error as i32).or_else(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_the_systems() {
        let known = [(2, "ENOENT"), (13, "EACCES"), (40, "ELOOP"), (133, "EHWPOISON")];
        for (number, name) in known {
            assert_eq!(error_name(number).as_deref(), Some(name));
            assert_eq!(error_number(name), Some(number));
        }
        assert_eq!([error_number("EWOULDBLOCK"), error_number("ENOTSUP")], [Some(11), Some(95)]);
        assert_eq!([error_name(0), error_name(512)], [None, None]);
        assert_eq!([error_number("ENOSUCH"), error_number("enoent"), error_number("")], [None; 3]);
    }
}
