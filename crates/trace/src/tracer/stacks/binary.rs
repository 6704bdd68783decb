//! Programs and libraries: how their code is unwound, and what its functions and lines are called.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Loader, demangle_auto};
use framehop::ExplicitModuleSectionInfo;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache};
use rustix::fs;

use super::interpreter::Interpreter;
use super::mappings::Mapping;
use crate::stack::Frame;

/// A program or library that is mapped into a process.
pub(super) struct Binary {
    /// The path, as the process has it.
    pub(super) path: String,
    /// Where the file can be read.
    readable: Option<PathBuf>,
    description: Description,
    symbols: Option<Symbols>,
}

/// The segments and unwinding rules in a binary's file, without its symbols.
#[derive(Default)]
struct Description {
    /// The file's loaded parts: the position in the file, the length, and the address.
    segments: Vec<(u64, u64, u64)>,
    sections: ExplicitModuleSectionInfo<Arc<[u8]>>,
    /// The file with the lines, where the distribution keeps it apart.
    debug_file: Option<PathBuf>,
    /// Where the interpreter of scripts keeps its state, if the binary contains one.
    interpreter: Option<Interpreter>,
}

/// The names of a binary's code, read when they are first needed.
#[derive(Default)]
struct Symbols {
    own: Option<Loader>,
    apart: Option<Loader>,
}

impl Binary {
    /// Reads the rules for unwinding. If the file was removed or replaced, frames have no names.
    pub(super) fn open(id: i32, mapping: &Mapping) -> Self {
        let path = mapping.identity().map_or("", |(_, _, path)| path).to_owned();
        let readable = readable(id, mapping);
        let described = readable.as_deref().and_then(describe);
        let readable = readable.filter(|_| described.is_some());
        let description = described.unwrap_or_default();
        Self { path, readable, description, symbols: None }
    }

    /// Where the interpreter of scripts keeps its state, by addresses in the file.
    pub(super) fn interpreter(&self) -> Option<Interpreter> {
        self.description.interpreter
    }

    /// How far a mapping lies from the addresses in the file.
    pub(super) fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let segments = &self.description.segments;
        let segment = segments.iter().find(|(at, length, _)| {
            (*at..at.saturating_add(*length)).contains(&mapping.offset) || *at == mapping.offset
        });
        // The linker rounds a mapping's start down to a page, so it may begin before the segment.
        let (at, _, address) = segment.or_else(|| {
            let end = mapping.offset.saturating_add(mapping.end - mapping.start);
            segments.iter().find(|(at, ..)| (mapping.offset..end).contains(at))
        })?;
        Some(mapping.start.wrapping_sub(address.wrapping_add(mapping.offset.wrapping_sub(*at))))
    }

    /// The sections for the unwinder.
    pub(super) fn sections(&self) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
        self.description.sections.clone()
    }

    /// The frames at an address of the file, inlined functions first; at least one.
    pub(super) fn frames(&mut self, address: u64) -> Vec<Frame> {
        let Self { readable, description: Description { debug_file, .. }, .. } = self;
        let symbols = self.symbols.get_or_insert_with(|| {
            let load = |file: &PathBuf| Loader::new(file).ok();
            let own = readable.as_ref().and_then(load);
            Symbols { own, apart: debug_file.as_ref().and_then(load) }
        });
        let mut frames = Vec::new();
        for loader in [&symbols.own, &symbols.apart].into_iter().flatten() {
            if frames.iter().all(|frame: &Frame| frame.file.is_empty()) {
                frames = described_frames(loader, address);
            }
        }
        let named = [&symbols.own, &symbols.apart].into_iter().flatten();
        let name = named.filter_map(|loader| loader.find_symbol(address)).next();
        if frames.is_empty() {
            frames.push(Frame::default());
        }
        if let (Some(last), Some(name)) = (frames.last_mut(), name)
            && last.function.is_empty()
        {
            last.function = demangle_auto(name.into(), None).into_owned();
        }
        frames.iter_mut().for_each(|frame| frame.object.clone_from(&self.path));
        frames
    }
}

/// Returns the frames that debugging information tells of.
fn described_frames(loader: &Loader, address: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    let Ok(mut found) = loader.find_frames(address) else { return frames };
    while let Ok(Some(one)) = found.next() {
        let name = one.function.and_then(|name| Some(name.demangle().ok()?.into_owned()));
        let (file, line) = one.location.map_or((None, None), |place| (place.file, place.line));
        frames.push(Frame {
            function: name.unwrap_or_default(),
            file: file.unwrap_or_default().to_owned(),
            line: line.unwrap_or(0),
            object: String::new(),
        });
    }
    frames
}

/// Returns the path by which this process can read a mapped file; `None` if it has gone or was replaced.
fn readable(id: i32, mapping: &Mapping) -> Option<PathBuf> {
    let (device, inode, path) = mapping.identity()?;
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = fs::makedev(number(major)?, number(minor)?);
    let path = PathBuf::from(format!("/proc/{id}/root{path}"));
    let mut options = File::options();
    // The path may by now name a pipe, on which opening must not block.
    options.read(true).custom_flags(fs::OFlags::NONBLOCK.bits().cast_signed());
    let metadata = options.open(&path).ok()?.metadata().ok()?;
    let is_same = metadata.is_file() && metadata.dev() == device && metadata.ino() == inode;
    is_same.then_some(path)
}

fn describe(path: &Path) -> Option<Description> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let segments = file
        .segments()
        .map(|segment| {
            let (at, length) = segment.file_range();
            (at, length, segment.address())
        })
        .collect();
    let section = |name: &str| {
        let section = file.section_by_name(name)?;
        let start = section.address();
        Some((start..start.checked_add(section.size())?, Arc::from(section.data().ok()?)))
    };
    let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
    let range = |name: &str| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address().checked_add(section.size())?)
    };
    let sections = ExplicitModuleSectionInfo {
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        ..ExplicitModuleSectionInfo::default()
    };
    let build_id = file.build_id().ok().flatten();
    let debug_file = build_id.and_then(debug_file);
    let address = |name: &str| {
        let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name))?;
        Some(symbol.address())
    };
    let interpreter = Interpreter::of(address);
    Some(Description { segments, sections, debug_file, interpreter })
}

/// Returns the file in which a distribution keeps the debugging information of a binary, if it is installed.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug"));
    path.is_file().then_some(path)
}
