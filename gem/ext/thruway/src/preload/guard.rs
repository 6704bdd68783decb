//! A child asks for one of Rails' files, which its template has loaded already: under the same variables?

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ruby::call::call;
use crate::ruby::{FALSE, Gvl, NIL, Pinned, Protected, RString, Symbol};

/// The paths of the files, and the Proc that compares: it answers whether there are more to compare.
static GUARD: OnceLock<(Vec<Vec<u8>>, Pinned)> = OnceLock::new();
static IS_ARMED: AtomicBool = AtomicBool::new(false);

/// From now on the Proc is called when one of those features is asked for.
pub(super) fn arm(gvl: Gvl, paths: Vec<Vec<u8>>, compare: rb_sys::VALUE) {
    GUARD.get_or_init(|| (paths, Pinned::new(gvl, compare)));
    IS_ARMED.store(true, Ordering::SeqCst);
}

/// Whether any feature has to be looked at; compares if it is one of those. May raise, and may not come back.
pub(crate) fn check(ruby: Protected, name: rb_sys::VALUE) {
    if !IS_ARMED.load(Ordering::Relaxed) {
        return;
    }
    let Some((paths, compare)) = GUARD.get() else { return };
    let gvl = ruby.gvl();
    let find = |name: &[u8]| paths.iter().find(|path| may_be(name, path));
    let Some(path) = RString::of(gvl, name).and_then(|name| name.read(gvl, find)) else { return };
    let path = RString::new(ruby.gvl(), path);
    let has_more = call(ruby, compare.value(), Symbol::new(ruby.gvl(), c"call"), &[path.value()]);
    IS_ARMED.store(has_more != FALSE && has_more != NIL, Ordering::SeqCst);
}

/// Whether a name may mean that file, wherever it is searched. A comparison too many does no harm.
fn may_be(name: &[u8], path: &[u8]) -> bool {
    let mut name = name.strip_suffix(b".rb").unwrap_or(name);
    while let Some(rest) = name.strip_prefix(b"./").or_else(|| name.strip_prefix(b"../")) {
        name = rest;
    }
    let path = path.strip_suffix(b".rb").unwrap_or(path);
    let above = path.strip_suffix(name);
    above.is_some_and(|above| above.is_empty() || above.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::may_be;

    #[test]
    fn a_file_is_known_by_each_of_its_names() {
        let path = b"/app/config/environment.rb";
        for name in [
            &path[..],
            b"/app/config/environment",
            b"./config/environment",
            b"../config/environment.rb",
            b"config/environment",
            b"environment",
        ] {
            assert!(may_be(name, path), "{}", String::from_utf8_lossy(name));
        }
        for name in [&b"/other/config/environment"[..], b"ronment", b"config/application"] {
            assert!(!may_be(name, path), "{}", String::from_utf8_lossy(name));
        }
    }
}
