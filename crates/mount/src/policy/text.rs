//! Parses the text of a policy, which is TOML.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::content::{Content, WITHIN_DEFAULT, WITHIN_MAX};
use super::glob::Globs;
use super::{AccessKind, Fault, Policy, Rule, Verdict};

/// The maximum number of rules, since an open may try all of them.
const RULES_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    log: bool,
    #[serde(default, rename = "rule")]
    rules: Vec<Spanned<RuleText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    paths: Option<Spanned<Vec<Spanned<String>>>>,
    uids: Option<Spanned<Vec<u32>>>,
    gids: Option<Spanned<Vec<u32>>>,
    access: Option<AccessKind>,
    larger_than: Option<u64>,
    smaller_than: Option<Spanned<u64>>,
    content: Option<Spanned<ContentText>>,
    verdict: Spanned<Verdict>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentText {
    regex: Option<Spanned<String>>,
    magic: Option<Spanned<String>>,
    at: Option<usize>,
    within: Option<Spanned<usize>>,
}

/// An error as the range of bytes in the text and a message.
type SpannedError = (Range<usize>, String);

pub(super) fn parse(text: &str) -> Result<Policy, Fault> {
    let fault = |(span, message): SpannedError| {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Fault { line, column, message }
    };
    let parsed: Text = toml::from_str(text)
        .map_err(|error| fault((error.span().unwrap_or(0..0), in_plain_words(error.message()))))?;
    rules(parsed).map_err(fault)
}

/// Rewords a message of the TOML parser so that it names no Rust types.
fn in_plain_words(message: &str) -> String {
    [
        ("\n", ", "),
        ("u32", "a number"),
        ("u64", "a number"),
        ("usize", "a number"),
        ("a sequence", "a list"),
    ]
    .iter()
    .fold(message.trim().to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

fn rules(text: Text) -> Result<Policy, SpannedError> {
    let mut rules = Vec::with_capacity(text.rules.len());
    let mut content_rules = 0;
    for rule in text.rules {
        let span = rule.span();
        let mut rule = self::rule(rule.into_inner())?;
        if let Some(content) = &mut rule.content {
            let bit = 1u64.checked_shl(content_rules);
            let too_many = || format!("more than {} rules about contents", u64::BITS);
            content.bit = bit.ok_or_else(|| (span.clone(), too_many()))?;
            content_rules += 1;
        }
        rules.push(rule);
        if rules.len() > RULES_MAX {
            return Err((span, format!("more than {RULES_MAX} rules")));
        }
    }
    Ok(Policy { rules, logs: text.log })
}

fn rule(text: RuleText) -> Result<Rule, SpannedError> {
    Ok(Rule {
        paths: text.paths.map(globs).transpose()?,
        uids: text.uids.map(ids).transpose()?,
        gids: text.gids.map(ids).transpose()?,
        access: text.access,
        larger_than: text.larger_than,
        smaller_than: text
            .smaller_than
            .map(|limit| checked_smaller_than(limit, text.larger_than))
            .transpose()?,
        content: text.content.map(content).transpose()?,
        verdict: text.verdict.into_inner(),
    })
}

fn ids(ids: Spanned<Vec<u32>>) -> Result<Vec<u32>, SpannedError> {
    match ids.get_ref().is_empty() {
        true => Err((ids.span(), "a rule for no user or group matches nothing".into())),
        false => Ok(ids.into_inner()),
    }
}

fn checked_smaller_than(
    limit: Spanned<u64>,
    larger_than: Option<u64>,
) -> Result<u64, SpannedError> {
    let least = larger_than.map_or(0, |size| size.saturating_add(1));
    match *limit.get_ref() {
        fine if fine > least => Ok(fine),
        _ => Err((limit.span(), format!("no file of {least} bytes or more is smaller than that"))),
    }
}

fn globs(patterns: Spanned<Vec<Spanned<String>>>) -> Result<Globs, SpannedError> {
    if patterns.get_ref().is_empty() {
        return Err((patterns.span(), "a rule for no path matches nothing".into()));
    }
    // Each pattern is first compiled alone, to find the pattern with the error.
    for pattern in patterns.get_ref() {
        let one = std::iter::once(pattern.get_ref().as_str());
        Globs::new(one).map_err(|message| (pattern.span(), message))?;
    }
    let span = patterns.span();
    let all = patterns.get_ref().iter().map(|pattern| pattern.get_ref().as_str());
    Globs::new(all).map_err(|message| (span, message))
}

fn content(text: Spanned<ContentText>) -> Result<Content, SpannedError> {
    let span = text.span();
    let wrong = |message: &str| (span.clone(), message.to_owned());
    match text.into_inner() {
        ContentText { regex: Some(regex), magic: None, at: None, within } => {
            let within = within.map_or(Ok(WITHIN_DEFAULT), checked_within)?;
            Content::pattern(regex.get_ref(), within).map_err(|message| (regex.span(), message))
        }
        ContentText { magic: Some(magic), regex: None, at, within: None } => {
            Content::magic(magic.get_ref(), at.unwrap_or(0))
                .map_err(|message| (magic.span(), message))
        }
        ContentText { regex: Some(_), magic: Some(_), .. } => {
            Err(wrong("regex and magic need separate rules"))
        }
        ContentText { regex: Some(_), .. } => Err(wrong("at applies only to magic")),
        ContentText { magic: Some(_), .. } => Err(wrong("within applies only to regex")),
        ContentText { .. } => Err(wrong("content needs a regex, or magic bytes")),
    }
}

fn checked_within(within: Spanned<usize>) -> Result<usize, SpannedError> {
    match *within.get_ref() {
        fine if (1..=WITHIN_MAX).contains(&fine) => Ok(fine),
        _ => Err((within.span(), format!("within must be 1 to {WITHIN_MAX} bytes"))),
    }
}
