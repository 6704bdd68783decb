//! Headers that libclang lacks for the headers of a newer Ruby.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command;

/// Returns arguments with which libclang reads Ruby's headers; `None` if the usual ones suffice.
///
/// The headers of a Ruby that was configured with a newer compiler include `<stdckdint.h>`, which clang has since
/// version 18. `folder` then gets a stand-in for the missing header.
pub(crate) fn clang_arguments(ruby: &OsStr, folder: &Path) -> Result<Option<OsString>, String> {
    const HEADERS: &str = "require 'rbconfig'; print RbConfig::CONFIG['rubyarchhdrdir']";
    let headers = command::output(Command::new(ruby).args(["--disable=gems", "-e", HEADERS]))?;
    let config = Path::new(&headers).join("ruby/config.h");
    arguments_for(&fs::read_to_string(config).unwrap_or_default(), folder)
}

/// The arguments for a Ruby with the given `config.h`.
fn arguments_for(config: &str, folder: &Path) -> Result<Option<OsString>, String> {
    if !config.lines().any(|line| line == "#define HAVE_STDCKDINT_H 1") {
        return Ok(None);
    }
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(folder.join("stdckdint.h"), CHECKED_INTEGERS).map_err(failed)?;
    let mut arguments = std::env::var_os("BINDGEN_EXTRA_CLANG_ARGS").unwrap_or_default();
    // bindgen splits the arguments as a shell does.
    arguments.push(format!(" -I\"{}\"", folder.display()));
    Ok(Some(arguments))
}

/// The C23 header in terms of built-in functions of clang and gcc, unless the compiler has the header.
const CHECKED_INTEGERS: &str =
    "#if defined(__has_include_next) && __has_include_next(<stdckdint.h>)
#include_next <stdckdint.h>
#else
#define ckd_add(sum, a, b) __builtin_add_overflow(a, b, sum)
#define ckd_sub(difference, a, b) __builtin_sub_overflow(a, b, difference)
#define ckd_mul(product, a, b) __builtin_mul_overflow(a, b, product)
#endif
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_clang_lacks_stands_in() {
        let folder = tempfile::tempdir().unwrap();
        let stand_in = folder.path().join("of C");
        assert_eq!(arguments_for("#define HAVE_STDBOOL_H 1\n", &stand_in), Ok(None));
        let arguments = arguments_for("#define HAVE_STDCKDINT_H 1\n", &stand_in).unwrap().unwrap();
        assert!(arguments.to_string_lossy().ends_with("/of C\""), "{arguments:?}");
        assert!(stand_in.join("stdckdint.h").is_file());
    }
}
