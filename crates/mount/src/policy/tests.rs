use super::*;

/// The facts about a caller and a file that the vectors give.
struct KnownFacts<'a> {
    groups: Vec<u32>,
    content: &'a [u8],
}

impl Facts for KnownFacts<'_> {
    fn is_in_one_of(&self, gids: &[u32]) -> Result<bool, Errno> {
        Ok(self.groups.iter().any(|group| gids.contains(group)))
    }

    fn size(&self) -> Result<Option<u64>, Errno> {
        Ok(Some(self.content.len() as u64))
    }

    fn matches(&self, content: &Content) -> Result<bool, Errno> {
        Ok(content.is_in(&self.content[..self.content.len().min(content.within)]))
    }
}

/// Checks a line with the cells path, uid, gid (others after plus signs), access (`rw`), content, expected verdict, and
/// expected rule.
fn check(policy: &Policy, line: &str) {
    let cells: Vec<_> = line.split('\t').collect();
    let [path, uid, gids, access, content, verdict, number] = cells[..] else {
        panic!("seven cells: {line}");
    };
    let gids: Vec<_> = gids.split('+').map(|gid| gid.parse().unwrap()).collect();
    let request = AccessRequest {
        path: path.as_bytes(),
        uid: uid.parse().unwrap(),
        gid: gids[0],
        access: Access { reads: access.contains('r'), writes: access.contains('w') },
    };
    let facts = KnownFacts { groups: gids[1..].to_vec(), content: content.as_bytes() };
    let decision = policy.decide(&request, &facts).unwrap();
    let expected = match verdict {
        "allow" => Verdict::Allow,
        "deny" => Verdict::Deny,
        "hide" => Verdict::Hide,
        "read-only" => Verdict::ReadOnly,
        "daemon-io" => Verdict::DaemonIo,
        other => panic!("no verdict {other}"),
    };
    assert_eq!(decision, Decision { verdict: expected, rule: number.parse().unwrap() }, "{line}");
}

#[test]
fn the_decisions_are_those_of_the_vectors() {
    let vectors = include_str!("../../tests/vectors/policy.tsv");
    let mut policy = String::new();
    let mut is_policy = false;
    let mut checked = 0;
    for line in vectors.lines() {
        match line.split_once('\t') {
            None if line.is_empty() || line.starts_with("# ") => {}
            Some(("policy", text)) => {
                if !is_policy {
                    policy.clear();
                }
                is_policy = true;
                policy.push_str(text);
                policy.push('\n');
            }
            _ => {
                is_policy = false;
                check(&text::parse(&policy).unwrap(), line);
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn errors_are_reported_with_line_and_column() {
    let fault = |text: &str| text::parse(text).unwrap_err().to_string();
    let cases = [
        ("[[rule]]\nverdict = \"denny\"", "line 2, column 11: unknown variant `denny`"),
        ("[[rule]]\npath = [\"a\"]\nverdict = \"deny\"", "line 2, column 1: unknown field `path`"),
        ("[[rule]]\nuids = [1]", "line 1, column 1: missing field `verdict`"),
        ("[[rule]\n", "line 1, column 8: "),
        ("[[rule]]\nverdict=\"deny\"\npaths = [\"a\", \"b[\"]", "line 3, column 15: unclosed ["),
        ("[[rule]]\nverdict=\"deny\"\npaths = []", "line 3, column 9: a rule for no path"),
        ("[[rule]]\nverdict=\"deny\"\nuids = []", "line 3, column 8: a rule for no user"),
        (
            "[[rule]]\nverdict=\"deny\"\nuids = [\"root\"]",
            "line 3, column 9: invalid type: string \"root\", expected a number",
        ),
        (
            "[[rule]]\nverdict=\"deny\"\nlarger_than = 5\nsmaller_than = 6",
            "line 4, column 16: no file of 6 bytes or more is smaller than that",
        ),
        ("[[rule]]\nverdict=\"deny\"\npaths = [\"/\"]", "line 3, column 10: an empty pattern"),
        (
            "[[rule]]\nverdict=\"deny\"\ncontent = { regex = \"ä(\" }",
            "line 3, column 21: unclosed group",
        ),
        (
            "[[rule]]\nverdict=\"deny\"\ncontent = { magic = \"7\" }",
            "line 3, column 21: magic bytes",
        ),
        ("[[rule]]\nverdict=\"deny\"\ncontent = { at = 4 }", "line 3, column 11: content needs"),
        (
            "[[rule]]\nverdict=\"deny\"\ncontent = { regex = \"a\", within = 0 }",
            "line 3, column 35: within must be 1 to ",
        ),
    ];
    for (text, expected) in cases {
        assert!(fault(text).starts_with(expected), "{text}\n{}", fault(text));
    }
}

#[test]
fn too_many_rules_are_refused() {
    let rule = "[[rule]]\nverdict = \"deny\"\n";
    assert_eq!(text::parse(&rule.repeat(1000)).unwrap().len(), 1000);
    assert!(text::parse(&rule.repeat(1001)).is_err());
    let content = format!("{rule}content = {{ magic = \"00\" }}\n");
    assert!(text::parse(&content.repeat(64)).unwrap().scans());
    assert!(text::parse(&content.repeat(65)).is_err());
}

#[test]
fn a_name_is_hidden_only_by_a_rule_of_paths_alone() {
    let policy = text::parse(
        "[[rule]]\npaths = [\".keep\"]\nverdict = \"allow\"\n\
         [[rule]]\npaths = [\".*\"]\nverdict = \"hide\"\n\
         [[rule]]\npaths = [\"own\"]\nuids = [0]\nverdict = \"hide\"\n",
    )
    .unwrap();
    assert!(policy.hides(b"a/.git") && policy.hides(b".git/config"));
    assert!(!policy.hides(b".keep") && !policy.hides(b"a.b") && !policy.hides(b"own"));
}

#[test]
fn the_same_rules_match_below_two_folders_with_equal_match_states() {
    let policy = text::parse(
        "[[rule]]\npaths = [\"a/b/c\", \"*.key\"]\nverdict = \"deny\"\n\
         [[rule]]\npaths = [\"d/*/e\", \"x/**/y\"]\nverdict = \"read-only\"\n\
         [[rule]]\npaths = [\"f/g\"]\nverdict = \"allow\"\n",
    )
    .unwrap();
    let same = [("q", "r"), ("q", "ab"), ("d/1", "d/2"), ("a/b/c", "1.key"), ("x/1", "x/2/3")];
    let different = [("q", "a"), ("a", "a/b"), ("q", "d"), ("d/1", "q"), ("q", "f"), ("x", "q")];
    for (one, other) in same {
        assert!(policy.is_same(one.as_bytes(), other.as_bytes()), "{one} {other}");
    }
    for (one, other) in different {
        assert!(!policy.is_same(one.as_bytes(), other.as_bytes()), "{one} {other}");
        assert!(policy.is_same_for_file(one.as_bytes(), other.as_bytes()), "{one} {other}");
    }
}

#[test]
fn paths_with_equal_match_states_have_the_same_matches_below() {
    let patterns = ["a", "a/b", "**/b/c", "a/**", "*/b", "a/**/c", "[ab]/c", "b\\/c", "**", "?b"];
    let names = ["a", "b", "c", "ab"];
    for pattern in patterns {
        let globs = Globs::new(std::iter::once(pattern)).unwrap();
        let mut paths: Vec<String> = names.map(str::to_owned).to_vec();
        for _ in 0..2 {
            let below = |path: &String| names.map(|name| format!("{path}/{name}"));
            paths.extend(paths.iter().flat_map(below).collect::<Vec<_>>());
        }
        let matches = |path: &str| globs.matches(path.as_bytes());
        for (one, other) in paths.iter().flat_map(|one| paths.iter().map(move |other| (one, other)))
        {
            if globs.match_state(one.as_bytes()) == globs.match_state(other.as_bytes()) {
                for below in ["", "/a", "/b", "/c", "/b/c", "/c/b", "/a/b/c"] {
                    let both = [one, other].map(|path| matches(&format!("{path}{below}")));
                    assert_eq!(both[0], both[1], "{pattern}: {one} {other} {below}");
                }
            }
        }
    }
}

#[test]
fn a_path_is_stricter_if_no_caller_may_do_more_there() {
    let policy = |rules: &[(&str, &str)]| {
        let rule = |(paths, verdict): &(&str, &str)| {
            format!("[[rule]]\npaths = [\"{paths}\"]\nverdict = \"{verdict}\"\n")
        };
        text::parse(&rules.iter().map(rule).collect::<String>()).unwrap()
    };
    let is_stricter = |rules: &[(&str, &str)]| policy(rules).is_stricter(b"old", b"new");
    assert!(is_stricter(&[("new", "deny")]));
    assert!(!is_stricter(&[("old", "deny")]));
    assert!(is_stricter(&[("old", "allow"), ("*", "deny")]));
    assert!(!is_stricter(&[("new", "allow"), ("*", "deny")]));
    assert!(is_stricter(&[("new", "deny"), ("*", "read-only")]));
    assert!(!is_stricter(&[("new", "read-only"), ("*", "deny")]));
    assert!(is_stricter(&[("*", "deny"), ("new", "hide")]));
}

#[test]
fn a_caller_may_be_refused_for_any_future_content() {
    let policy = text::parse(
        "[[rule]]\nuids = [1]\nverdict = \"allow\"\n\
         [[rule]]\ngids = [5]\naccess = \"read\"\nverdict = \"allow\"\n\
         [[rule]]\npaths = [\"a\"]\nlarger_than = 9\nverdict = \"deny\"\n",
    )
    .unwrap();
    let may_refuse = |path: &str, uid: u32, gid: u32| {
        let access = Access { reads: true, writes: true };
        let request = AccessRequest { path: path.as_bytes(), uid, gid, access };
        policy.may_refuse(&request, &KnownFacts { groups: Vec::new(), content: b"" })
    };
    assert!(!may_refuse("a", 1, 0) && !may_refuse("b", 2, 0));
    assert!(may_refuse("a", 2, 0) && may_refuse("a", 2, 5));
}

#[test]
fn a_class_never_matches_a_slash() {
    let globs = |pattern: &str| Globs::new(std::iter::once(pattern));
    assert!(
        !globs("a[+-9]b").unwrap().matches(b"a/b") && globs("a[+-9]b").unwrap().matches(b"a1b")
    );
    assert_eq!(globs("a[x/]b").unwrap_err(), "a / between [ and ]");
    assert!(!globs("a**b").unwrap().matches(b"a/b") && globs("a**b").unwrap().matches(b"axb"));
}
