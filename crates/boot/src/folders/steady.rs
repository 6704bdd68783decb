//! Steady folders: those of a Ruby installation and of a gem's release, which change only when something is
//! installed. The root is treated alike, because it is above all others and changes as rarely.

use crate::path;

/// Whether a clean path is a steady folder, or lies below one.
pub(super) fn is_steady(path: &[u8]) -> bool {
    let components: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let pairs = || components.windows(2).map(|pair| (pair[0], pair[1]));
    let is_of_a_gem = pairs().any(|(above, name)| above == b"gems" && is_release(name));
    let is_of_ruby = pairs().any(|(above, name)| above == b"ruby" && is_of_ruby(name));
    path::split(path).is_none()
        || is_of_a_gem
        || is_of_ruby && !components.contains(&&b"site_ruby"[..])
}

/// Matches `rack-3.0.8`, `nokogiri-1.16.0-x86_64-linux`, and Bundler's `rack-0123456789ab`.
fn is_release(name: &[u8]) -> bool {
    let mut parts = name.split(|byte| *byte == b'-').skip(1);
    parts.any(|part| is_version(part) || part.len() == 12 && part.iter().all(u8::is_ascii_hexdigit))
}

/// Matches `3.3.0` and Debian's `vendor_ruby`.
fn is_of_ruby(name: &[u8]) -> bool {
    name == b"vendor_ruby" || is_version(name)
}

fn is_version(part: &[u8]) -> bool {
    part.first().is_some_and(u8::is_ascii_digit) && part.contains(&b'.')
}

#[cfg(test)]
#[cfg(not(windows))]
mod tests {
    use super::is_steady;

    #[test]
    fn the_root_and_rubies_and_releases_of_gems_are_steady() {
        let steady = [
            "/",
            "/usr/lib/ruby/3.1.0/json",
            "/usr/lib/x86_64-linux-gnu/ruby/3.1.0",
            "/usr/lib/ruby/vendor_ruby/rack",
            "/var/lib/gems/3.1.0/gems/rack-3.0.8/lib",
            "/app/vendor/bundle/ruby/3.3.0/gems/nokogiri-1.16.0-x86_64-linux/lib",
            "/home/me/.bundle/ruby/3.3.0/bundler/gems/rails-0123456789ab/activesupport/lib",
        ];
        steady.iter().for_each(|path| assert!(is_steady(path.as_bytes()), "{path}"));
    }

    #[test]
    fn what_is_worked_on_is_not() {
        let others = [
            "/app/lib",
            "/home/me/gems/rack/lib",
            "/home/me/gems/http-2/lib",
            "/usr/local/lib/site_ruby/3.1.0",
            "/opt/ruby/3.3.0/lib/ruby/site_ruby/3.3.0",
            "/srv/ruby/app",
        ];
        others.iter().for_each(|path| assert!(!is_steady(path.as_bytes()), "{path}"));
    }
}
