//! `thruway run` against plain Ruby and bootsnap: the cost of a boot.

mod contender;
mod program;
mod report;
mod reports;

use crate::context::BenchContext;
use crate::serve::system_root::EnteredRoot;
use crate::table::{Table, at_most};
use contender::{Boot, Contender, Way};
use program::Program;
use report::{Report, Usage};
use reports::Reports;

/// Measures programs that consist of features alone, for the cost per feature.
pub(super) fn synthetic(context: &BenchContext) -> Result<String, String> {
    let programs = program::synthetic(context)?;
    tables(context, None, &programs, &Way::WARM, |table, reports| {
        table.target(
            "thruway ≤ 1.00 × bootsnap",
            at_most(ratio_to_bootsnap(reports, Way::Thruway), 1.0),
        );
        portable(table, reports);
    })
}

/// Measures commands that developers start all day long, in a Rails application.
pub(super) fn commands(context: &BenchContext) -> Result<String, String> {
    tables(context, None, &program::commands(context, None)?, &Way::WARM, portable)
}

/// Measures all of Rails and the commands on the systems that `--root` names, whose Ruby and Rails are newer than this
/// machine's.
pub(super) fn roots(context: &BenchContext) -> Result<String, String> {
    let tables = context.roots.iter().map(|root| {
        let system = root.enter(std::slice::from_ref(&context.root))?;
        let mut programs = vec![program::rails(context, Some(&system))?];
        programs.extend(program::commands(context, Some(&system))?);
        tables(context, Some(&system), &programs, &Way::WARM, |table, reports| {
            let share = ratio_to_bootsnap(reports, Way::Thruway);
            table.target("thruway ≤ 0.60 × bootsnap", at_most(share, 0.60));
            let share = reports.usage_ratio(Way::Thruway, Way::Bootsnap, Usage::processor_ms);
            table.target("processor time ≤ 0.60 × bootsnap", at_most(share, 0.60));
            memory(table, reports, 1.05);
        })
    });
    Ok(tables.collect::<Result<Vec<_>, _>>()?.join("\n\n"))
}

/// Measures the same commands as forks of a booted application. Their calls are the questions that are compared before
/// each fork.
pub(super) fn preloaded(context: &BenchContext) -> Result<String, String> {
    let commands = program::commands(context, None)?;
    let commands = tables(context, None, &commands, &Way::FORKS, |table, reports| {
        table.target(
            "preload ≤ 0.15 × bootsnap",
            at_most(ratio_to_bootsnap(reports, Way::Preload), 0.15),
        );
        let of_spring = reports.wall_ratio(Way::Preload, Way::Spring);
        table.target("preload ≤ 0.25 × Spring", at_most(of_spring, 0.25));
    })?;
    let test = [program::one_test(context)?];
    let test = tables(context, None, &test, &Way::FORKS, |table, reports| {
        table.target(
            "preload ≤ 0.30 × bootsnap",
            at_most(ratio_to_bootsnap(reports, Way::Preload), 0.30),
        );
    })?;
    let short = program::short(context)?;
    let short = tables(context, None, &short, &Way::SHORT, |table, reports| {
        let of_plain = reports.wall_ratio(Way::Preload, Way::Plain);
        table.target("preload ≤ 0.30 × plain", at_most(of_plain, 0.30));
    })?;
    Ok([commands, test, short].join("\n\n"))
}

/// Measures all of Rails.
pub(super) fn rails(context: &BenchContext) -> Result<String, String> {
    tables(context, None, &[program::rails(context, None)?], &Way::ALL, |table, reports| {
        let of_plain = reports.wall_ratio(Way::Thruway, Way::Plain);
        table.target("thruway ≤ 0.40 × plain", at_most(of_plain, 0.40));
        table.target(
            "thruway ≤ 0.75 × bootsnap",
            at_most(ratio_to_bootsnap(reports, Way::Thruway), 0.75),
        );
        let calls = reports.calls(Way::Thruway);
        table.target("thruway ≤ 8000 file system calls", at_most(calls, 8000.0));
        memory_and_learning(table, reports);
    })
}

/// Measures a large application as packaged by Debian.
pub(super) fn redmine(context: &BenchContext) -> Result<String, String> {
    let programs: Vec<_> = program::redmine(context)?.into_iter().collect();
    tables(context, None, &programs, &Way::ALL, |table, reports| {
        table.target(
            "thruway ≤ 0.80 × bootsnap",
            at_most(ratio_to_bootsnap(reports, Way::Thruway), 0.80),
        );
        memory_and_learning(table, reports);
    })
}

fn memory_and_learning(table: &mut Table, reports: &Reports) {
    portable(table, reports);
    memory(table, reports, 1.10);
    let learning = reports.wall_ratio(Way::ThruwayCold, Way::Plain);
    table.target("first boot ≤ 1.25 × plain", at_most(learning, 1.25));
}

/// Adds the target of memory, as a multiple of bootsnap's.
fn memory(table: &mut Table, reports: &Reports, most: f64) {
    let share = reports.usage_ratio(Way::Thruway, Way::Bootsnap, |usage| usage.resident_mb);
    table.target(&format!("memory ≤ {most:.2} × bootsnap"), at_most(share, most));
}

/// Adds the target of the portable mode: where the calls of libruby cannot be answered, names and code still come from
/// the pack.
fn portable(table: &mut Table, reports: &Reports) {
    let share = ratio_to_bootsnap(reports, Way::ThruwayPortable);
    table.target("portable ≤ 1.00 × bootsnap", at_most(share, 1.0));
}

/// The wall time of a way to boot, divided by that of bootsnap.
fn ratio_to_bootsnap(reports: &Reports, way: Way) -> Option<f64> {
    reports.wall_ratio(way, Way::Bootsnap)
}

/// Returns a table for each program, with its verdicts.
fn tables(
    context: &BenchContext,
    system: Option<&EnteredRoot>,
    programs: &[Program],
    ways: &[Way],
    judge: impl Fn(&mut Table, &Reports),
) -> Result<String, String> {
    let mut texts = Vec::new();
    for program in programs {
        let boot = Boot::new(context, system, program)?;
        let reports = measured(context, &boot, Contender::all(context, system, ways))?;
        let mut table = Table::new(&program.title, &COLUMNS);
        reports
            .iter()
            .for_each(|contender| table.row(contender.name(), &cells(contender, &reports)));
        judge(&mut table, &reports);
        texts.push(table.text());
    }
    Ok(texts.join("\n\n"))
}

const COLUMNS: [&str; 9] = [
    "",
    "wall, ms",
    "÷ plain",
    "÷ bootsnap",
    "user, ms",
    "system, ms",
    "processor ÷ bootsnap",
    "file system calls",
    "memory, MB",
];

/// Boots every contender until its cache is warm, then all of them once a round, and then counts calls.
fn measured(
    context: &BenchContext,
    boot: &Boot<'_>,
    all: Vec<Contender>,
) -> Result<Reports, String> {
    let mut contenders = Vec::new();
    for contender in all {
        match boot.warm(&contender) {
            // Spring supports only some releases of Rails.
            Err(error) if contender.way == Way::Spring => {
                println!("left out: Spring: {}", error.lines().next().unwrap_or_default());
                continue;
            }
            warm => warm?,
        }
        contenders.push((contender, Vec::<Report>::new()));
    }
    for _ in 0..context.rounds {
        for (contender, reports) in &mut contenders {
            reports.push(boot.report(contender)?);
        }
    }
    let mut reports = Reports::default();
    for (contender, all) in contenders {
        let calls = boot.file_calls(&contender)?;
        reports.push(contender, all, calls);
    }
    Ok(reports)
}

fn cells(one: &reports::ContenderReports, all: &Reports) -> Vec<String> {
    let wall = one.wall_ms();
    let share = |way| {
        let share = all.wall_ratio(one.way(), way);
        share.map_or_else(String::new, |share| format!("{share:.2}"))
    };
    let used = |of| one.usage(of).map_or_else(String::new, |median| format!("{median:.0}"));
    vec![
        format!("{:.0} ± {:.0} %", wall.median(), wall.spread() * 100.0),
        share(Way::Plain),
        share(Way::Bootsnap),
        used(|usage| usage.user_ms),
        used(|usage| usage.system_ms),
        all.usage_ratio(one.way(), Way::Bootsnap, Usage::processor_ms)
            .map_or_else(String::new, |share| format!("{share:.2}")),
        one.calls.map_or_else(String::new, |calls| calls.to_string()),
        used(|usage| usage.resident_mb),
    ]
}
