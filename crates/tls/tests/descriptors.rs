//! Certificates that change while the process has no descriptor left. The limit applies to the whole process, so this
//! test has its own process.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thruway_testing::certificate;
use thruway_tls::{Options, ServerContext, TicketKeys};

#[test]
fn certificates_are_read_once_there_is_a_descriptor_again() {
    let folder = tempfile::tempdir().unwrap();
    let (pair, other) = (certificate::localhost(folder.path()), certificate::other(folder.path()));
    let certificates = vec![(pair.certificate.clone(), pair.key.clone())];
    let keys = Arc::new(TicketKeys::new().unwrap());
    let options = Options { certificates, ..Options::default() };
    let mut context = ServerContext::new(options, keys, true).unwrap();
    pair.replace_by(&other);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: limit.maximum }).unwrap();
    let without = context.reload_if_changed();
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(without.unwrap_err().to_string().contains("Too many open files"));
    assert!(context.reload_if_changed().unwrap(), "it is tried again");
    assert!(!context.reload_if_changed().unwrap());
}
