//! The options of automatic certificates, and their agent, which runs in a process beside the server.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::output::Failure;
use crate::quantities::seconds;

/// The verb of the agent's process.
pub(crate) const AGENT_VERB: &str = "certificate-agent";

/// The ports of a server with automatic certificates.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// The pause before a restart of an agent that has ended.
const RESTART_PAUSE: Duration = Duration::from_secs(10);

/// The default time of HSTS in seconds: a year.
const HSTS_S: &str = "31536000";

/// Automatic certificates.
#[derive(Debug, Clone, Args)]
pub(crate) struct AcmeOptions {
    /// A name to obtain a certificate for, from an authority that speaks ACME; may be repeated. Without -p and -b, the
    /// server then listens on ports 80 and 443
    #[arg(long, value_name = "NAME", help_heading = "Certificates")]
    pub(crate) acme_domain: Vec<String>,
    /// The authority's directory [default: https://acme-v02.api.letsencrypt.org/directory]
    #[arg(long, value_name = "URL", help_heading = "Certificates")]
    pub(crate) acme_directory: Option<String>,
    /// The certificates to trust for the directory's own TLS [default: those of the system]
    #[arg(long, value_name = "FILE", help_heading = "Certificates")]
    pub(crate) acme_ca: Option<PathBuf>,
    /// An e-mail address for messages of the authority; may be repeated
    #[arg(long, value_name = "ADDRESS", help_heading = "Certificates")]
    pub(crate) acme_contact: Vec<String>,
    /// The authority's name for the key of an external account
    #[arg(long, value_name = "ID", help_heading = "Certificates")]
    pub(crate) acme_eab_kid: Option<String>,
    /// The file with this key, in Base64 [default: the variable THRUWAY_ACME_EAB_KEY]
    #[arg(long, value_name = "FILE", help_heading = "Certificates")]
    pub(crate) acme_eab_key_file: Option<PathBuf>,
    /// The folder for certificates and keys, which servers may share [default: storage/thruway of an application that
    /// has a folder storage, otherwise thruway/certificates in the user's state folder]
    #[arg(long, value_name = "DIR", help_heading = "Certificates")]
    pub(crate) acme_storage: Option<PathBuf>,
    /// The challenge to answer: http-01 or tls-alpn-01; may be repeated [default: those that the listeners allow]
    #[arg(long, value_name = "KIND", help_heading = "Certificates")]
    pub(crate) acme_challenge: Vec<String>,
    /// The port for HTTPS with automatic certificates [default: 443]
    #[arg(long, value_name = "PORT", help_heading = "Certificates")]
    pub(crate) https_port: Option<u16>,
    /// The port to redirect plain HTTP to, or off [default: the port for HTTPS]
    #[arg(long, value_name = "PORT", help_heading = "Certificates")]
    pub(crate) https_redirect: Option<HttpsRedirect>,
    /// Ask browsers to use only HTTPS for this host during this time: seconds, or a time such as 180d
    #[arg(long, value_name = "TIME", value_parser = hsts_seconds, num_args = 0..=1, require_equals = true,
          default_missing_value = HSTS_S, help_heading = "Certificates")]
    pub(super) hsts: Option<u64>,
}

fn hsts_seconds(text: &str) -> Result<u64, String> {
    seconds(text).map(|time| time.as_secs())
}

/// Whether and where plain HTTP is redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpsRedirect {
    /// Plain HTTP is served.
    Off,
    /// Plain HTTP is redirected to HTTPS at this port.
    To(u16),
}

impl FromStr for HttpsRedirect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::To).map_err(|_| "must be a port, or off".into()),
        }
    }
}

impl std::fmt::Display for HttpsRedirect {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => formatter.write_str("off"),
            Self::To(port) => port.fmt(formatter),
        }
    }
}

impl AcmeOptions {
    /// Whether certificates are obtained.
    pub(super) fn is_on(&self) -> bool {
        !self.acme_domain.is_empty()
    }

    /// Returns an option that is given although it has no effect without a domain, if any.
    pub(super) fn needs_domain(&self) -> Option<&'static str> {
        let said = [
            (self.acme_directory.is_some(), "--acme-directory"),
            (self.acme_ca.is_some(), "--acme-ca"),
            (!self.acme_contact.is_empty(), "--acme-contact"),
            (self.acme_eab_kid.is_some(), "--acme-eab-kid"),
            (self.acme_eab_key_file.is_some(), "--acme-eab-key-file"),
            (self.acme_storage.is_some(), "--acme-storage"),
            (!self.acme_challenge.is_empty(), "--acme-challenge"),
            (self.https_port.is_some(), "--https-port"),
            (self.https_redirect.is_some(), "--https-redirect"),
        ];
        said.into_iter().find_map(|(is_said, option)| (is_said && !self.is_on()).then_some(option))
    }

    /// Returns the options as words, for Ruby's part of a server.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut say = |option: &str, value: OsString| words.extend([option.into(), value]);
        self.acme_domain.iter().for_each(|name| say("--acme-domain", name.into()));
        self.acme_contact.iter().for_each(|contact| say("--acme-contact", contact.into()));
        self.acme_challenge.iter().for_each(|kind| say("--acme-challenge", kind.into()));
        let texts =
            [("--acme-directory", &self.acme_directory), ("--acme-eab-kid", &self.acme_eab_kid)];
        for (option, text) in texts.into_iter().filter_map(|(o, text)| Some((o, text.as_ref()?))) {
            say(option, text.into());
        }
        let paths = [
            ("--acme-ca", &self.acme_ca),
            ("--acme-eab-key-file", &self.acme_eab_key_file),
            ("--acme-storage", &self.acme_storage),
        ];
        for (option, path) in paths.into_iter().filter_map(|(o, path)| Some((o, path.as_ref()?))) {
            say(option, path.into());
        }
        if let Some(port) = self.https_port {
            say("--https-port", port.to_string().into());
        }
        if let Some(redirect) = self.https_redirect {
            say("--https-redirect", redirect.to_string().into());
        }
        if let Some(seconds) = self.hsts {
            say("--hsts", seconds.to_string().into());
        }
        words
    }

    /// Returns the addresses of a server: the given ones, with the parameters for automatic certificates. The agent
    /// keeps the certificates in `folder`.
    ///
    /// # Errors
    /// No address speaks TLS.
    pub(crate) fn addresses(
        &self,
        given: Vec<String>,
        folder: &str,
    ) -> Result<Vec<String>, Failure> {
        let folder = escaped(folder);
        let names: String =
            self.acme_domain.iter().map(|name| format!("&acme_name={}", name_of(name))).collect();
        let redirect = match self.https_redirect {
            Some(HttpsRedirect::Off) => None,
            Some(HttpsRedirect::To(port)) => Some(port),
            None => given.iter().find_map(|uri| port_of_tls(uri)),
        };
        let redirect = redirect.map(|port| format!("&https={port}")).unwrap_or_default();
        if !given.iter().any(|uri| is_tls(uri)) {
            let failure = Failure::new("certificates are obtained, and no address speaks TLS");
            return Err(failure.hint("add --https-port PORT, or -b ssl://HOST:PORT"));
        }
        let given = given.into_iter().map(|uri| match &uri {
            uri if is_tls(uri) && !uri.contains("cert=") => {
                with_parameters(uri, &format!("acme={folder}{names}"))
            }
            uri if is_plain(uri) => {
                with_parameters(uri, &format!("acme={folder}{names}{redirect}"))
            }
            _ => uri,
        });
        Ok(given.collect())
    }

    /// Returns the addresses without parameters: from `-b`, from `-p`, and the ports for HTTP and HTTPS.
    pub(crate) fn plain_addresses(&self, bind: &[String], port: Option<u16>) -> Vec<String> {
        let host = any_host();
        let mut given = bind.to_vec();
        let has_tls = given.iter().any(|uri| is_tls(uri));
        let port = port.or(bind.is_empty().then_some(HTTP_PORT));
        given.splice(0..0, port.map(|port| format!("tcp://{host}:{port}")));
        if !has_tls && (bind.is_empty() || self.https_port.is_some()) {
            let port = self.https_port.unwrap_or(HTTPS_PORT);
            given.push(format!("ssl://{host}:{port}"));
        }
        given
    }

    /// Returns the challenges that the addresses permit.
    pub(crate) fn challenges(&self, addresses: &[String]) -> Vec<String> {
        if !self.acme_challenge.is_empty() {
            return self.acme_challenge.clone();
        }
        let has_plain = addresses.iter().any(|uri| is_plain(uri));
        let kinds = [("http-01", has_plain), ("tls-alpn-01", true)];
        kinds.into_iter().filter(|(_, is_had)| *is_had).map(|(kind, _)| kind.to_owned()).collect()
    }

    /// Returns the words that start the agent.
    fn agent(&self, bind: &[String], port: Option<u16>) -> Vec<OsString> {
        let parent = std::process::id().to_string();
        let mut words: Vec<OsString> = vec![AGENT_VERB.into(), "--parent".into(), parent.into()];
        bind.iter().for_each(|uri| words.extend(["--bind".into(), uri.into()]));
        if let Some(port) = port {
            words.extend(["--port".into(), port.to_string().into()]);
        }
        // HSTS concerns the server alone.
        words.extend(Self { hsts: None, ..self.clone() }.words());
        words
    }
}

/// A running agent, which is restarted whenever it ends.
pub(super) struct AgentProcess {
    words: Vec<OsString>,
    child: Child,
    /// The addresses for the server to listen on.
    pub(super) addresses: Vec<String>,
}

impl AgentProcess {
    /// Starts an agent. The agent checks its settings and waits for [`begin`](Self::begin).
    ///
    /// # Errors
    /// The status with which the agent has ended. The agent has printed the reason.
    pub(super) fn start(
        options: &AcmeOptions,
        bind: &[String],
        port: Option<u16>,
    ) -> Result<Self, ExitCode> {
        let words = options.agent(bind, port);
        let (child, addresses) = start(&words).ok_or_else(|| ExitCode::from(2))?;
        Ok(Self { words, child, addresses })
    }

    /// Lets the agent begin, now that the server can answer challenges. Restarts the agent whenever it ends.
    pub(super) fn begin(mut self) {
        thread::spawn(move || {
            loop {
                let stdin = self.child.stdin.take();
                // A failure to write means that the agent has ended, as the wait below notices.
                let _ = stdin.map(|mut stdin| stdin.write_all(b"begin\n"));
                let _ = self.child.wait();
                Failure::new("the agent for certificates has ended; starting another").show();
                self.child = loop {
                    thread::sleep(RESTART_PAUSE);
                    if let Some((child, _)) = start(&self.words) {
                        break child;
                    }
                };
            }
        });
    }
}

/// Starts an agent, and reads the addresses that the agent prints.
fn start(words: &[OsString]) -> Option<(Child, Vec<String>)> {
    let program = std::env::current_exe().ok()?;
    let mut command = Command::new(program);
    let child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child
        .inspect_err(|error| {
            let text = format_args!("cannot start the agent for certificates: {error}");
            Failure::new(text).show();
        })
        .ok()?;
    let lines = BufReader::new(child.stdout.take()?).lines();
    let addresses: Vec<_> =
        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    if addresses.is_empty() {
        // Without addresses, the agent has reported a failure and ends.
        let _ = child.wait();
        return None;
    }
    Some((child, addresses))
}

/// Returns the host of all addresses: both families, if the system has IPv6.
fn any_host() -> &'static str {
    let has_ipv6 = fs::read("/proc/net/if_inet6").is_ok_and(|list| !list.is_empty());
    if has_ipv6 { "[::]" } else { "0.0.0.0" }
}

fn name_of(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn is_tls(uri: &str) -> bool {
    uri.starts_with("ssl://")
}

fn is_plain(uri: &str) -> bool {
    !is_tls(uri) && !uri.starts_with("unix:")
}

fn port_of_tls(uri: &str) -> Option<u16> {
    let place = uri.strip_prefix("ssl://")?.split('?').next()?;
    place.trim_end_matches('/').rsplit(':').next()?.parse().ok()
}

fn with_parameters(uri: &str, parameters: &str) -> String {
    format!("{uri}{}{parameters}", if uri.contains('?') { '&' } else { '?' })
}

/// Escapes the characters of a path that have a meaning in an address.
fn escaped(path: &str) -> String {
    let escape = |sign: char| match sign {
        '%' | '&' | '=' | '?' | '#' | ' ' => format!("%{:02X}", u32::from(sign)),
        other => other.to_string(),
    };
    path.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        acme: AcmeOptions,
    }

    fn options(words: &str) -> AcmeOptions {
        Line::parse_from(["serve"].into_iter().chain(words.split_whitespace())).acme
    }

    fn addresses(words: &str, bind: &[&str], port: Option<u16>) -> Vec<String> {
        let options = options(words);
        let bind: Vec<_> = bind.iter().map(|uri| (*uri).to_owned()).collect();
        let given = options.plain_addresses(&bind, port);
        options.addresses(given, "/a b").expect("one of them speaks TLS")
    }

    #[test]
    fn a_server_with_a_domain_listens_on_80_and_443_and_redirects() {
        let host = any_host();
        assert_eq!(
            addresses("--acme-domain A.Example --acme-domain b.example", &[], None),
            [
                format!(
                    "tcp://{host}:80?acme=/a%20b&acme_name=a.example&acme_name=b.example&https=443"
                ),
                format!("ssl://{host}:443?acme=/a%20b&acme_name=a.example&acme_name=b.example"),
            ]
        );
    }

    #[test]
    fn given_addresses_keep_their_parameters_and_their_certificates() {
        let words = "--acme-domain a.example --https-redirect 8443";
        let bind = ["tcp://h:1?backlog=5", "ssl://h:2", "ssl://h:3?cert=c", "unix:///s"];
        assert_eq!(
            addresses(words, &bind, None),
            [
                "tcp://h:1?backlog=5&acme=/a%20b&acme_name=a.example&https=8443",
                "ssl://h:2?acme=/a%20b&acme_name=a.example",
                "ssl://h:3?cert=c",
                "unix:///s",
            ]
        );
        let words = "--acme-domain a.example --https-redirect off --https-port 4";
        assert_eq!(
            addresses(words, &[], Some(3)),
            [
                format!("tcp://{}:3?acme=/a%20b&acme_name=a.example", any_host()),
                format!("ssl://{}:4?acme=/a%20b&acme_name=a.example", any_host()),
            ]
        );
    }

    #[test]
    fn addresses_without_tls_are_refused() {
        let options = options("--acme-domain a.example");
        assert!(options.addresses(vec!["tcp://h:1".into()], "/a").is_err());
        assert_eq!(self::options("--acme-ca file").needs_domain(), Some("--acme-ca"));
        assert_eq!(self::options("--hsts").hsts, Some(31_536_000));
        assert_eq!(self::options("--hsts=60").hsts, Some(60));
    }
}
