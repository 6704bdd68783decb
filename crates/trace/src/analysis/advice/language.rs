//! Advice on locales, translations and terminal descriptions.

use super::super::names::Name;
use super::super::report::SearchedFolder;
use super::context::{Context, search};
use crate::analysis::kind::SearchKind;
use crate::analysis::report::{Advice, AdviceForm};
use crate::analysis::text::{quoted, shell_line, text};

const VARIABLES: [&str; 14] = [
    "LC_ALL",
    "LC_CTYPE",
    "LC_NUMERIC",
    "LC_TIME",
    "LC_COLLATE",
    "LC_MONETARY",
    "LC_MESSAGES",
    "LC_PAPER",
    "LC_NAME",
    "LC_ADDRESS",
    "LC_TELEPHONE",
    "LC_MEASUREMENT",
    "LC_IDENTIFICATION",
    "LANG",
];

/// Returns the folders of locales, without those of translations.
fn locales<'a>(context: &Context<'a>) -> Option<Vec<&'a SearchedFolder>> {
    let search = search(context.report, SearchKind::Locale)?;
    Some(search.folders.iter().filter(|folder| !is_translation(&folder.path)).collect())
}

fn is_translation(folder: &str) -> bool {
    folder.ends_with("/LC_MESSAGES")
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Splits a locale into its language with country, and the encoding in the form that the C library compares:
/// `UTF-8` becomes `utf8`.
fn normal(locale: &str) -> (&str, String) {
    let (language, encoding) = locale.split_once('.').unwrap_or((locale, ""));
    let letters = encoding.chars().filter(char::is_ascii_alphanumeric);
    (language, letters.map(|letter| letter.to_ascii_lowercase()).collect())
}

/// Returns the variables that name a locale, with their values.
fn named<'a>(context: &Context<'a>) -> impl Iterator<Item = (&'static str, &'a str)> {
    let value = |name| context.analysis.header.variable(name).filter(|value| !value.is_empty());
    VARIABLES.into_iter().filter_map(move |name| Some((name, value(name)?)))
}

/// Advises to set a locale by its installed name, since the C library first tries the name as given.
pub(super) fn locale_name(context: &Context<'_>) -> Option<Advice> {
    let folders = locales(context)?;
    let mut settings = Vec::new();
    let mut saves = 0;
    for (variable, value) in named(context) {
        let missed = folders.iter().find(|folder| last(&folder.path) == value && !folder.is_used);
        let is_it = |folder: &&&SearchedFolder| {
            folder.is_used && normal(last(&folder.path)) == normal(value)
        };
        let (Some(missed), Some(installed)) = (missed, folders.iter().find(is_it)) else {
            continue;
        };
        // Two variables may have the same value.
        if !settings.iter().any(|(_, known)| *known == last(&installed.path)) {
            saves += missed.missed;
        }
        settings.push((variable, last(&installed.path)));
    }
    let settings = settings.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    let settings = settings.collect::<Vec<_>>().join(" ");
    (!settings.is_empty()).then(|| {
        Advice::new(
            AdviceForm::Setting,
            "the locale by the name that it is installed under",
            saves,
            format!("export {settings}"),
        )
    })
}

/// Advises to install a locale that is missing completely, so that programs fall back to the locale `C`.
pub(super) fn missing_locale(context: &Context<'_>) -> Option<Advice> {
    let folders = locales(context)?;
    let is_form = |folder: &str, value: &str| {
        // de_DE.UTF-8, de_DE.utf8, de_DE, de.UTF-8, de.utf8, de
        let (form, encoding) = normal(folder);
        let (language, wanted) = normal(value);
        let language = language.split('@').next().unwrap_or(language);
        (form == language || Some(form) == language.split('_').next())
            && (encoding.is_empty() || encoding == wanted)
    };
    let missing = named(context).find_map(|(variable, value)| {
        let forms = folders.iter().filter(|folder| is_form(last(&folder.path), value));
        let missed = forms.clone().map(|folder| folder.missed).sum::<u64>();
        let is_missing = forms.clone().all(|folder| !folder.is_used) && forms.count() > 0;
        is_missing.then_some((variable, value, missed))
    });
    let (variable, value, saves) = missing?;
    let how = installation(context, value)?;
    Some(Advice {
        note: Some(format!("or set {variable} to what is meant: locale -a lists what is there")),
        ..Advice::new(
            AdviceForm::Setting,
            format!("the locale {value} is not installed"),
            saves,
            how,
        )
    })
}

/// Returns the command that installs a locale; `None` if the system has no sources of such a locale, or is unknown.
fn installation(context: &Context<'_>, locale: &str) -> Option<String> {
    let (language, _) = locale.split_once('.').unwrap_or((locale, ""));
    let plain = language.split('@').next().unwrap_or(language);
    let is_word = |word: &str| word.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    let encoding = locale.split_once('.').map(|(_, encoding)| encoding);
    let encoding = match encoding? {
        _ if !is_word(language) => return None,
        encoding if normal(locale).1 == "utf8" || encoding.is_empty() => "UTF-8",
        encoding => encoding,
    };
    let has = |path: &str| context.disk.has(path.as_bytes());
    let make = format!("localedef -i {plain} -f {} {}", quoted(encoding), quoted(locale));
    if has(&format!("/usr/share/i18n/locales/{plain}")) {
        Some(make)
    } else if has("/usr/share/i18n/locales/C") {
        // The system has the sources of all locales that there are.
        None
    } else if has("/etc/debian_version") {
        Some(format!("apt-get install locales && {make}"))
    } else if has("/etc/fedora-release") || has("/etc/redhat-release") {
        let language = plain.split('_').next().unwrap_or(plain);
        Some(format!("dnf install glibc-langpack-{language}"))
    } else {
        None
    }
}

/// Advises to turn translations off if none is installed: every program looks for them under each form of the
/// locale's name.
pub(super) fn translations(context: &Context<'_>) -> Option<Advice> {
    let search = search(context.report, SearchKind::Locale)?;
    let folders = search.folders.iter().filter(|folder| is_translation(&folder.path));
    // An existing translation is wanted.
    if folders.clone().any(|folder| folder.opened + folder.found > 0) {
        return None;
    }
    let command = shell_line(&context.report.totals.command);
    let how = match context.analysis.header.variable("LC_ALL").filter(|value| !value.is_empty()) {
        None => format!("LC_MESSAGES=C {command}"),
        Some(all) => {
            let others = named(context).filter(|(name, _)| name.starts_with("LC_"));
            // An empty variable counts as unset (locale(7)).
            let unset = others.map(|(name, _)| format!("{name}= ")).collect::<String>();
            format!("{unset}LANG={} LC_MESSAGES=C {command}", quoted(all))
        }
    };
    Some(Advice {
        note: Some("no translation is installed of what it asked for".to_owned()),
        ..Advice::new(
            AdviceForm::Command,
            "messages without translations",
            folders.map(|folder| folder.missed).sum(),
            how,
        )
    })
}

/// Advises to name the folder of the terminal's description, for which every program searches several
/// folders.
pub(super) fn terminal(context: &Context<'_>) -> Option<Advice> {
    let names = &context.analysis.names;
    // A description is in a folder named after its first letter, or the letter's code in hexadecimal.
    let base = |name: Name| {
        let letter = names.parent(name);
        let base = names.parent(letter);
        if !matches!(names.component(base), b"terminfo" | b".terminfo") {
            return None;
        }
        let (first, component) = (*names.component(name).first()?, names.component(letter));
        let is_letter = component == [first] || component == format!("{first:x}").as_bytes();
        is_letter.then_some(base)
    };
    let asked = names.all().filter(|name| names.counts(*name).asked > 0);
    let asked: Vec<_> = asked.filter_map(|name| Some((name, base(name)?))).collect();
    let found = |(name, _): &&(Name, Name)| names.counts(*name).found() > 0;
    let mut bases: Vec<_> = asked.iter().filter(found).map(|(_, base)| *base).collect();
    bases.dedup();
    let saves = asked.iter().map(|(name, _)| u64::from(names.counts(*name).missed)).sum();
    match bases.as_slice() {
        [base] if context.analysis.header.variable("TERMINFO").is_none() => {
            let base = text(&names.path(*base));
            let command = shell_line(&context.report.totals.command);
            Some(Advice::new(
                AdviceForm::Command,
                "the description of the terminal where it is",
                saves,
                format!("TERMINFO={} {command}", quoted(&base)),
            ))
        }
        _ => None,
    }
}
