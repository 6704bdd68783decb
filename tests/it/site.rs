//! A folder that is served with and without TLS.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use thruway_testing::certificate::{self, Pair};

use crate::http::Server;
use crate::thruway;

/// Two files: `short` and `large`.
pub(crate) struct Site {
    folder: TempDir,
    pub(crate) pair: Pair,
    pub(crate) plain: Server,
    pub(crate) tls: Server,
}

impl Site {
    /// `short` has ten bytes.
    pub(crate) fn new(large_bytes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let pair = certificate::localhost(folder.path());
        let site = folder.path().join("site");
        fs::create_dir(&site).expect("it is made");
        fs::write(site.join("short"), "0123456789").expect("it is written");
        let large: Vec<u8> = (0..large_bytes).map(|at| (at % 251) as u8).collect();
        fs::write(site.join("large"), large).expect("it is written");
        let serve = |bind: &str| {
            let mut command = thruway();
            Server::start(command.arg("serve").arg(&site).args(["-w", "2", "-b", bind]))
        };
        let tls = serve(&format!("ssl://127.0.0.1:0?{}", pair.parameters()));
        let plain = serve("tcp://127.0.0.1:0");
        Self { folder, pair, plain, tls }
    }

    /// Returns the path of a file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("site").join(name)
    }

    /// Returns the URLs of a file, without TLS and with TLS.
    pub(crate) fn urls(&self, name: &str) -> [String; 2] {
        let [plain, tls] = [&self.plain, &self.tls].map(Server::address);
        [format!("http://{plain}/{name}"), format!("https://{tls}/{name}")]
    }
}
