use super::*;

/// A caller and a file as the vectors describe them.
struct Seen<'a> {
    groups: Vec<u32>,
    content: &'a [u8],
}

impl Evidence for Seen<'_> {
    fn is_in_one_of(&self, gids: &[u32]) -> Result<bool, Errno> {
        Ok(self.groups.iter().any(|group| gids.contains(group)))
    }

    fn size(&self) -> Result<Option<u64>, Errno> {
        Ok(Some(self.content.len() as u64))
    }

    fn fits(&self, content: &Content) -> Result<bool, Errno> {
        Ok(content.is_in(&self.content[..self.content.len().min(content.within)]))
    }
}

/// `path`, `uid`, `gid` (the first, and others after plus signs), `rw`, content, and what is expected: the verdict and the rule's number.
fn check(policy: &Policy, line: &str) {
    let cells: Vec<_> = line.split('\t').collect();
    let [path, uid, gids, access, content, verdict, number] = cells[..] else {
        panic!("seven cells: {line}");
    };
    let gids: Vec<_> = gids.split('+').map(|gid| gid.parse().unwrap()).collect();
    let question = Question {
        path: path.as_bytes(),
        uid: uid.parse().unwrap(),
        gid: gids[0],
        access: Access { reads: access.contains('r'), writes: access.contains('w') },
    };
    let seen = Seen { groups: gids[1..].to_vec(), content: content.as_bytes() };
    let judged = policy.judge(&question, &seen).unwrap();
    let expected = match verdict {
        "allow" => Verdict::Allow,
        "deny" => Verdict::Deny,
        "hide" => Verdict::Hide,
        "read-only" => Verdict::ReadOnly,
        "daemon-io" => Verdict::DaemonIo,
        other => panic!("no verdict {other}"),
    };
    assert_eq!(judged, Judgement { verdict: expected, rule: number.parse().unwrap() }, "{line}");
}

#[test]
fn the_vectors_are_judged_as_they_say() {
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
                check(&Policy::parse(&policy).unwrap(), line);
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_column() {
    let fault = |text: &str| Policy::parse(text).unwrap_err().to_string();
    let cases = [
        ("[[rule]]\nverdict = \"denny\"", "line 2, column 11: unknown variant `denny`"),
        ("[[rule]]\npath = [\"a\"]\nverdict = \"deny\"", "line 2, column 1: unknown field `path`"),
        ("[[rule]]\nuids = [1]", "line 1, column 1: missing field `verdict`"),
        ("[[rule]\n", "line 1, column 8: "),
        (
            "[[rule]]\nverdict=\"deny\"\npaths = [\"a\", \"b[\"]",
            "line 3, column 15: a [ without its ]",
        ),
        ("[[rule]]\nverdict=\"deny\"\npaths = []", "line 3, column 9: a rule for no path"),
        ("[[rule]]\nverdict=\"deny\"\nuids = []", "line 3, column 8: a rule for nobody"),
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
            "line 3, column 35: within is 1 to ",
        ),
    ];
    for (text, expected) in cases {
        assert!(fault(text).starts_with(expected), "{text}\n{}", fault(text));
    }
}

#[test]
fn too_many_rules_are_refused() {
    let rule = "[[rule]]\nverdict = \"deny\"\n";
    assert_eq!(Policy::parse(&rule.repeat(1000)).unwrap().len(), 1000);
    assert!(Policy::parse(&rule.repeat(1001)).is_err());
    let content = format!("{rule}content = {{ magic = \"00\" }}\n");
    assert!(Policy::parse(&content.repeat(64)).unwrap().scans());
    assert!(Policy::parse(&content.repeat(65)).is_err());
}

#[test]
fn a_name_is_hidden_only_by_a_rule_of_paths_alone() {
    let policy = Policy::parse(
        "[[rule]]\npaths = [\".keep\"]\nverdict = \"allow\"\n\
         [[rule]]\npaths = [\".*\"]\nverdict = \"hide\"\n\
         [[rule]]\npaths = [\"own\"]\nuids = [0]\nverdict = \"hide\"\n",
    )
    .unwrap();
    assert!(policy.hides(b"a/.git") && policy.hides(b".git/config"));
    assert!(!policy.hides(b".keep") && !policy.hides(b"a.b") && !policy.hides(b"own"));
}

#[test]
fn a_folder_with_rules_below_it_is_known() {
    let policy = Policy::parse(
        "[[rule]]\npaths = [\"a/b/c\", \"*.key\"]\nverdict = \"deny\"\n\
         [[rule]]\npaths = [\"d/*/e\"]\nverdict = \"read-only\"\n\
         [[rule]]\npaths = [\"f/g\"]\nverdict = \"allow\"\n",
    )
    .unwrap();
    for folder in ["a", "a/b", "d", "d/x"] {
        assert!(policy.looks_below(folder.as_bytes()), "{folder}");
    }
    for folder in ["b", "ab", "a/bc", "a/b/c", "a/b/c/d", "f", "x.key"] {
        assert!(!policy.looks_below(folder.as_bytes()), "{folder}");
    }
}
