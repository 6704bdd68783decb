//! Starts the command, which waits until its tracer has attached, and the tracer.
//!
//! The recorder is the parent of both, so that the command's parent, group and terminal are those that the
//! user's shell set up.

use std::io::{self, PipeReader, PipeWriter, Read, Write};

use thruway_sys::process;
use thruway_sys::seccomp::{self, Instruction};
use thruway_sys::signal::Mask;

use crate::doorbell::Doorbell;
use crate::error;
use crate::shared_rings::SharedRings;
use crate::tracer::{Tracer, TracerContext};
use crate::{Command, Error, filter};

/// The IDs of the two processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchedProcesses {
    pub(crate) command: i32,
    pub(crate) tracer: i32,
}

/// State shared by the steps of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchContext<'a> {
    pub(crate) rings: &'a SharedRings,
    pub(crate) doorbell: &'a Doorbell,
    pub(crate) with_stub: bool,
    pub(crate) with_stacks: bool,
    /// The signal mask with which the command starts.
    pub(crate) mask: &'a Mask,
}

/// Starts the command under its tracer. Returns when the command is running.
pub(crate) fn launch(
    command: &Command,
    context: LaunchContext<'_>,
) -> Result<LaunchedProcesses, Error> {
    let name = command.program();
    // Each process gets only its own ends of the pipes, so that a read ends when the other process dies.
    let pipe = || io::pipe().map_err(|error| Error::system("start", name, error));
    let ((hello_reader, hello), (go, go_writer)) = (pipe()?, pipe()?);
    let recorder = std::process::id().cast_signed();
    let tracer = process::fork(move || trace(context, recorder, hello_reader, go_writer))
        .map_err(|error| Error::system("start", name, error))?;
    let program = filter::program(context.rings.cookie());
    let (failed_reader, failed) = pipe()?;
    let start = move || run(command, &program, context.mask, tracer, (hello, go, failed));
    let child = process::fork(start).map_err(|error| Error::system("start", name, error))?;
    wait_for_start(failed_reader, name)?;
    Ok(LaunchedProcesses { command: child, tracer })
}

/// Waits until the child has executed the program or has reported an error.
fn wait_for_start(mut failed: PipeReader, name: &[u8]) -> Result<(), Error> {
    let mut failure = [0; 5];
    match failed.read_exact(&mut failure) {
        // The pipe was closed by the execution of the program, or by the end of the child.
        Err(_) => Ok(()),
        Ok(()) => {
            let [stage, errno @ ..] = failure;
            let doing = if stage == RUN { error::RUN } else { error::TRACE };
            let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
            Err(Error::system(doing, name, error))
        }
    }
}

const FILTER: u8 = 1;
const RUN: u8 = 2;

/// The main function of the tracer's process.
fn trace(
    context: LaunchContext<'_>,
    recorder: i32,
    mut hello: PipeReader,
    mut go: PipeWriter,
) -> u8 {
    process::die_with_parent(true);
    process::set_name(c"thruway-tracer");
    Mask::full().set();
    let LaunchContext { rings, doorbell, with_stub, with_stacks, .. } = context;
    // Prepared while the command's process is being forked.
    let mut tracer =
        Tracer::new(TracerContext { rings, doorbell, recorder, with_stub, with_stacks });
    let mut root = [0; 4];
    let traced = hello.read_exact(&mut root).and_then(|()| {
        tracer.attach(i32::from_ne_bytes(root))?;
        rings.become_recorder()?;
        process::die_with_parent(false);
        go.write_all(&[1])?;
        drop((hello, go));
        tracer.run()
    });
    match traced {
        Ok(()) => 0,
        // The error numbers of these calls are below 128.
        Err(error) => u8::try_from(error.raw_os_error().unwrap_or(1)).unwrap_or(1),
    }
}

/// The main function of the command's process, until it executes the program.
fn run(
    command: &Command,
    filter: &[Instruction],
    mask: &Mask,
    tracer: i32,
    (mut hello, mut go, failed): (PipeWriter, PipeReader, PipeWriter),
) -> u8 {
    process::permit_tracer(tracer);
    let started =
        hello.write_all(&std::process::id().to_ne_bytes()).and_then(|()| go.read_exact(&mut [0]));
    if started.is_err() {
        return NOT_STARTED;
    }
    become_program(command, mask, failed, || seccomp::install(filter))
}

/// The exit status of a process that did not become the program.
const NOT_STARTED: u8 = 125;

/// Calls `prepare` and executes the program. Reports an error of either through `failed`.
fn become_program(
    command: &Command,
    mask: &Mask,
    mut failed: PipeWriter,
    prepare: impl FnOnce() -> io::Result<()>,
) -> u8 {
    process::restore_broken_pipe();
    mask.set();
    let (stage, error) = match prepare() {
        Err(error) => (FILTER, error),
        Ok(()) => {
            (RUN, process::execute(&command.program, &command.arguments, &command.environment))
        }
    };
    let errno = error.raw_os_error().unwrap_or(0).to_ne_bytes();
    // The write fails if the recorder has died.
    let _ = failed.write_all(&[[stage].as_slice(), &errno].concat());
    NOT_STARTED
}
