//! The sources of a mount while the mount exists: which there are, and how they change.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thruway_sys::printable;

use crate::plan::OnMissing;
use crate::source_spec::SourceSpec;
use crate::source_table::SourceTable;
use crate::upper::Upper;
use crate::{Error, Log, Mode, Plan, sources};

/// A change of the sources.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SourceChange {
    /// Adds sources before or after all others. A source that is already there gets other options.
    Add {
        /// The sources.
        sources: Vec<SourceSpec>,
        /// Whether they come before all others.
        first: bool,
    },
    /// Removes the sources with these paths or patterns.
    Remove(Vec<SourceSpec>),
    /// Evaluates patterns again, and reads the file of sources again.
    Reload,
}

/// The sources of a mount.
#[derive(Debug)]
pub(crate) struct LiveSources {
    plan: RefCell<Plan>,
    table: RefCell<SourceTable>,
    /// The sources that are not followed.
    held: Vec<OwnedFd>,
    is_merged: bool,
}

impl LiveSources {
    /// Opens the sources of a plan.
    pub(crate) fn open(
        plan: &Plan,
        log: &Log,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Self, Error> {
        let opened = sources::open(plan, log, is_cancelled)?;
        let table = SourceTable::new(opened.sources);
        if let Some(upper) = &plan.upper {
            if table.order.len() < 2 {
                return Err(Error::plain("no source is left below the upper one"));
            }
            // The worker opens the upper source again, but its errors come after the mount was made.
            Upper::open(upper)?;
        }
        let is_plain = plan.sources.iter().all(SourceSpec::is_plain) && plan.sources_file.is_none();
        Ok(Self {
            plan: RefCell::new(plan.clone()),
            is_merged: table.order.len() > 1 || !is_plain,
            table: RefCell::new(table),
            held: opened.held,
        })
    }

    pub(crate) fn table(&self) -> SourceTable {
        self.table.borrow().clone()
    }

    /// Whether there are several sources, or there may be later.
    pub(crate) fn is_merged(&self) -> bool {
        self.is_merged
    }

    /// Returns the descriptors of the sources that are not followed.
    pub(crate) fn unfollowed(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held.iter().map(AsFd::as_fd)
    }

    /// Changes the sources. Returns the new table, or `None` if nothing has changed.
    pub(crate) fn change(&self, change: SourceChange) -> Result<Option<SourceTable>, Error> {
        let mut plan = self.plan.borrow().clone();
        let is_reload = matches!(change, SourceChange::Reload);
        if let Some(reason) = self.fixed_because(&plan) {
            return if is_reload { Ok(None) } else { Err(reason) };
        }
        match change {
            SourceChange::Add { sources, first } => add(&mut plan, sources, first)?,
            SourceChange::Remove(sources) => remove(&mut plan, &sources)?,
            SourceChange::Reload => {}
        }
        let named = sources::named(&plan)?;
        if named.is_empty() {
            return Err(Error::plain("no source would be left")
                .with_hint(format_args!("thruway unmount {}", printable::path(&plan.target))));
        }
        let mut table = self.table();
        table.set(sources::places(named, &plan.presence));
        let has_changed = table != *self.table.borrow();
        self.plan.replace(plan);
        self.table.replace(table.clone());
        Ok(has_changed.then_some(table))
    }

    /// Returns the reason why the sources of this mount cannot change, if there is one.
    fn fixed_because(&self, plan: &Plan) -> Option<Error> {
        let target = printable::path(&plan.target);
        let fixed = |reason: &str| {
            Error::plain(format_args!("the sources of {target} cannot change: {reason}"))
        };
        if plan.mode == Mode::Frozen {
            return Some(fixed("the mount is frozen"));
        }
        if plan.upper.is_some() {
            return Some(fixed("they are below an upper source, which refers to their files"));
        }
        if plan.access_times.is_some() || !self.held.is_empty() {
            return Some(fixed(
                "with --atime, and below its own source or target, they stay as they were",
            ));
        }
        (!self.is_merged).then(|| {
            fixed("it has one source").with_hint(
                "mount it again as SOURCE=RW, or by a pattern, to add sources while it is in use",
            )
        })
    }
}

fn add(plan: &mut Plan, added: Vec<SourceSpec>, first: bool) -> Result<(), Error> {
    for spec in &added {
        check_new(plan, spec)?;
    }
    plan.sources.retain(|spec| !added.iter().any(|new| new.path == spec.path));
    let at = if first { 0 } else { plan.sources.len() };
    plan.sources.splice(at..at, added);
    Ok(())
}

fn check_new(plan: &Plan, spec: &SourceSpec) -> Result<(), Error> {
    let expanded = spec.expand()?;
    let may_be_missing = plan.missing == OnMissing::Skip || spec.is_pattern();
    let is_around = |path: &Path, other: &Path| path.starts_with(other) || other.starts_with(path);
    if let Some(found) = expanded.iter().find(|found| is_around(&found.path, &plan.target)) {
        return Err(Error::plain(format_args!(
            "cannot add {}: one of the source and the target {} contains the other",
            printable::path(&found.path),
            printable::path(&plan.target)
        )));
    }
    for found in &expanded {
        match sources::check_new(&found.path, plan) {
            Ok(()) => {}
            Err(failure) if failure.is_missing && may_be_missing => {}
            Err(failure) => return Err(failure.error),
        }
    }
    Ok(())
}

fn remove(plan: &mut Plan, removed: &[SourceSpec]) -> Result<(), Error> {
    for gone in removed {
        if plan.sources.iter().any(|spec| spec.path == gone.path) {
            plan.sources.retain(|spec| spec.path != gone.path);
            continue;
        }
        let named = sources::named(plan)?;
        if !named.iter().any(|spec| spec.path == gone.path) {
            return Err(Error::plain(format_args!(
                "{} is not a source of {}",
                printable::path(&gone.path),
                printable::path(&plan.target)
            ))
            .with_hint("thruway mount status shows the sources"));
        }
        // It comes from a pattern, which is replaced by the other folders that match.
        plan.sources = without_pattern_of(plan, &gone.path)?;
    }
    Ok(())
}

fn without_pattern_of(plan: &Plan, gone: &PathBuf) -> Result<Vec<SourceSpec>, Error> {
    let mut all = Vec::new();
    let mut is_found = false;
    for spec in &plan.sources {
        let expanded = spec.expand()?;
        if expanded.iter().any(|found| found.path == *gone) {
            is_found = true;
            all.extend(expanded.into_iter().filter(|found| found.path != *gone));
        } else {
            all.push(spec.clone());
        }
    }
    if is_found {
        return Ok(all);
    }
    let file = plan.sources_file.as_deref().unwrap_or(Path::new(""));
    Err(Error::plain(format_args!(
        "{} is in the file {}",
        printable::path(gone),
        printable::path(&file)
    ))
    .with_hint("remove it there, then: thruway mount reload"))
}
