//! The rules of plain HTTP listeners for names whose certificates an ACME agent keeps.

use std::path::PathBuf;

use thruway_tls::AcmeFolder;

/// The rules of a plain HTTP listener beside a TLS listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureSite {
    /// Where the agent writes its answers to challenges (`?acme=`).
    pub folder: AcmeFolder,
    /// The names, in lower case (`?acme_name=`).
    pub names: Vec<String>,
    /// The port to which requests are redirected (`?https=`); none if they are served.
    pub https_port: Option<u16>,
}

impl SecureSite {
    fn new(folder: &str) -> Self {
        let folder = AcmeFolder::new(PathBuf::from(decoded(folder)));
        Self { folder, names: Vec::new(), https_port: None }
    }
}

/// Parses a parameter of a plain HTTP address; false for a parameter that does not concern a site.
pub(crate) fn take(
    site: &mut Option<SecureSite>,
    name: &str,
    value: &str,
) -> Result<bool, &'static str> {
    match (name, site.as_mut()) {
        ("acme", _) => *site = Some(SecureSite::new(value)),
        ("acme_name", Some(site)) => site.names.push(value.to_owned()),
        ("https", Some(site)) => {
            site.https_port = Some(value.parse().map_err(|_| "https= is a port")?);
        }
        ("acme_name" | "https", None) => return Err("acme_name= and https= follow acme="),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Decodes a path in which `%20` stands for a space, as in TLS addresses.
fn decoded(text: &str) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(thruway_tls::percent_decoded(text))
}
