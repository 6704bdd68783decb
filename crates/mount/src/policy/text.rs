//! A policy's text: TOML.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::content::{Content, WITHIN_DEFAULT, WITHIN_MAX};
use super::glob::Globs;
use super::{AccessKind, Fault, Policy, Rule, Verdict};

/// Most rules: each open asks all of them.
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
    uids: Option<Vec<u32>>,
    gids: Option<Vec<u32>>,
    access: Option<AccessKind>,
    larger_than: Option<u64>,
    smaller_than: Option<u64>,
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

/// A message and the bytes of the text that it is about.
type Wrong = (Range<usize>, String);

pub(super) fn parse(text: &str) -> Result<Policy, Fault> {
    let fault = |(span, message): Wrong| {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Fault { line, column, message }
    };
    let parsed: Text = toml::from_str(text).map_err(|error| {
        fault((error.span().unwrap_or(0..0), error.message().trim().replace('\n', ", ")))
    })?;
    rules(parsed).map_err(fault)
}

fn rules(text: Text) -> Result<Policy, Wrong> {
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

fn rule(text: RuleText) -> Result<Rule, Wrong> {
    Ok(Rule {
        paths: text.paths.map(globs).transpose()?,
        uids: text.uids,
        gids: text.gids,
        access: text.access,
        larger_than: text.larger_than,
        smaller_than: text.smaller_than,
        content: text.content.map(content).transpose()?,
        verdict: text.verdict.into_inner(),
    })
}

fn globs(patterns: Spanned<Vec<Spanned<String>>>) -> Result<Globs, Wrong> {
    if patterns.get_ref().is_empty() {
        return Err((patterns.span(), "a rule for no path fits nothing".into()));
    }
    // Each alone first, so that the one with the error is known.
    for pattern in patterns.get_ref() {
        let one = std::iter::once(pattern.get_ref().as_str());
        Globs::new(one).map_err(|message| (pattern.span(), message))?;
    }
    let span = patterns.span();
    let all = patterns.get_ref().iter().map(|pattern| pattern.get_ref().as_str());
    Globs::new(all).map_err(|message| (span, message))
}

fn content(text: Spanned<ContentText>) -> Result<Content, Wrong> {
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
            Err(wrong("regex and magic are two rules"))
        }
        ContentText { regex: Some(_), .. } => Err(wrong("at belongs to magic")),
        ContentText { magic: Some(_), .. } => Err(wrong("within belongs to regex")),
        ContentText { .. } => Err(wrong("content needs a regex, or magic bytes")),
    }
}

fn checked_within(within: Spanned<usize>) -> Result<usize, Wrong> {
    match *within.get_ref() {
        fine if (1..=WITHIN_MAX).contains(&fine) => Ok(fine),
        _ => Err((within.span(), format!("within is 1 to {WITHIN_MAX} bytes"))),
    }
}
