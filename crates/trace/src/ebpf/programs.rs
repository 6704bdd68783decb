//! The programs, attached; and the ring that they note into.

use std::error;
use std::fs::metadata;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use aya::maps::{Array, MapData, RingBuf};
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader, include_bytes_aligned};

use crate::Error;
use crate::call::{Abi, Argument, Call, Numbers};

/// Compiled from `programs.c`.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/programs.o"));

/// Each program, and where in the kernel it belongs.
const PLACES: [(&str, &str); 5] = [
    ("thread_begins", "task_newtask"),
    ("thread_ends", "sched_process_exit"),
    ("program_begins", "sched_process_exec"),
    ("call_begins", "sys_enter"),
    ("call_ends", "sys_exit"),
];

/// Where the kernel describes its types, and our own namespace of process ids.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
const NAMESPACE: &str = "/proc/self/ns/pid";

/// How many records are taken at a time: some 50 ms of work, after which signals are looked at.
const RECORDS_MAX: usize = 50_000;

/// Attached as long as this lives: the kernel takes them away with the last descriptor.
pub(super) struct Programs {
    ring: RingBuf<MapData>,
    totals: Array<MapData, [u64; 2]>,
    _loaded: Ebpf,
}

/// What the programs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    /// Threads of the command's that live.
    pub(super) followed: u64,
    /// Records for which there was no room.
    pub(super) lost: u64,
}

impl Programs {
    /// Loads and attaches them. They follow the first process that this one makes.
    pub(super) fn attach() -> Result<Self, Error> {
        let types = Btf::from_sys_fs().map_err(|error| failure(TYPES, &error))?;
        let mut loaded = load(&types)?;
        for (name, place) in PLACES {
            attach(&mut loaded, name, place, &types).map_err(|error| failure(place, &error))?;
        }
        let mut map = |name| {
            loaded
                .take_map(name)
                .ok_or_else(|| failure(name, &io::Error::from(io::ErrorKind::NotFound)))
        };
        let ring = RingBuf::try_from(map("ring")?).map_err(|error| failure("ring", &error))?;
        let totals = Array::try_from(map(".bss")?).map_err(|error| failure("totals", &error))?;
        Ok(Self { ring, totals, _loaded: loaded })
    }

    /// Takes the records that are there, in the order in which they were noted. It stops where there are
    /// so many that everything else would have to wait. Answers with whether those were all.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&[u8])) -> bool {
        for _ in 0..RECORDS_MAX {
            let Some(record) = self.ring.next() else { return true };
            each(&record);
        }
        false
    }

    pub(super) fn totals(&self) -> io::Result<Totals> {
        let [followed, lost] = self.totals.get(&0, 0).map_err(io::Error::other)?;
        Ok(Totals { followed, lost })
    }
}

impl AsFd for Programs {
    /// Readable where the ring fills up faster than it is emptied.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

fn load(types: &Btf) -> Result<Ebpf, Error> {
    let shapes = shapes();
    let namespace = metadata(NAMESPACE).map_err(|error| failure(NAMESPACE, &error))?;
    let (device, inode, recorder) = (namespace.dev(), namespace.ino(), std::process::id());
    EbpfLoader::new()
        .btf(Some(types))
        // What lies with the threads, which we need not look at.
        .allow_unsupported_maps()
        .override_global("shapes", shapes.as_slice(), true)
        .override_global("recorder", &recorder, true)
        .override_global("namespace_device", &device, true)
        .override_global("namespace_inode", &inode, true)
        .load(OBJECT)
        .map_err(|error| failure("programs", &error))
}

fn attach(loaded: &mut Ebpf, name: &str, place: &str, types: &Btf) -> Result<(), ProgramError> {
    let program = loaded.program_mut(name).ok_or(ProgramError::NotLoaded)?;
    let program: &mut BtfTracePoint = program.try_into()?;
    program.load(place, types)?;
    program.attach()?;
    Ok(())
}

/// From what the loader says of a part: a chain of errors, the first of which may have the verifier's log
/// below its first line.
fn failure(part: &str, error: &(dyn error::Error + 'static)) -> Error {
    let chain = std::iter::successors(Some(error), |error| error.source());
    let cause = chain.filter_map(|error| error.downcast_ref::<io::Error>()).last();
    let text = cause.map_or_else(|| error.to_string(), ToString::to_string);
    let is_forbidden = cause.is_some_and(|cause| cause.raw_os_error() == Some(EPERM));
    let reason = text.lines().next().unwrap_or_default();
    Error::no_programs(format!("{part}: {reason}"), is_forbidden)
}

const EPERM: i32 = 1;

/// How many numbers of an ABI have a shape, as in `programs.c`.
const NUMBERS: usize = 1024;
const NOTED: u16 = 0x8000;
const ONLY_DUPLICATES: u16 = 0x4000;

/// What the programs know of each call, by ABI and number.
fn shapes() -> Vec<u16> {
    let mut shapes = vec![0; Abi::ALL.len() * NUMBERS];
    for (abi, numbers) in Abi::ALL.iter().zip(shapes.chunks_mut(NUMBERS)) {
        for (number, call) in Numbers::new(*abi).iter() {
            if let Some(slot) = numbers.get_mut(number as usize) {
                *slot = shape(call);
            }
        }
    }
    shapes
}

fn shape(call: &Call) -> u16 {
    let condition = if call.is_always_recorded() { 0 } else { ONLY_DUPLICATES };
    let place = |argument| match argument {
        Argument::None => 0,
        Argument::Plain(place) | Argument::At(_, place) => u16::from(place) + 1,
    };
    let [first, second] = call.names.map(place);
    NOTED | condition | second << 3 | first
}
