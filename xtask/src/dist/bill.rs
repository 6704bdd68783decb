//! The contents of the programs, for audits: a bill of materials (CycloneDX) and all licences.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;
use toml::{Table, Value};

use super::build::Builder;
use super::crates::Crate;
use super::files;

/// The beginnings of the names of licence files.
const LICENCES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];
const OF_GLIBC: &str = "\n================ the GNU C library ================\n\n\
    The command in the archive and in the gem is linked with it statically. It is under the LGPL, version 2.1 or\n\
    later: https://www.gnu.org/licenses/old-licenses/lgpl-2.1.html. Its sources are Debian's package glibc. The\n\
    sources of the command are public, and cargo x dist links it with another version of the library.\n";

/// Returns the bill in the form of CycloneDX 1.5.
pub(super) fn materials(builder: &Builder, crates: &[Crate]) -> Result<String, String> {
    let components: Vec<_> = crates.iter().map(component).collect();
    let names: BTreeMap<_, _> =
        crates.iter().map(|own| (own.id.as_str(), reference(own))).collect();
    let dependencies: Vec<_> = crates
        .iter()
        .map(|own| {
            let needs: Vec<_> = own.needs.iter().filter_map(|id| names.get(id.as_str())).collect();
            json!({ "ref": reference(own), "dependsOn": needs })
        })
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "thruway",
                "name": "thruway",
                "version": builder.version,
                "licenses": [{ "license": { "id": "MIT" } }],
                "externalReferences": [{ "type": "vcs", "url": builder.repository }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    serde_json::to_string_pretty(&bill).map_err(|error| error.to_string())
}

fn reference(own: &Crate) -> String {
    format!("pkg:cargo/{}@{}", own.name, own.version)
}

fn component(own: &Crate) -> serde_json::Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(own),
        "name": own.name,
        "version": own.version,
        "purl": reference(own),
        "licenses": [{ "expression": own.licence }],
    });
    if let Some(checksum) = &own.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if !own.repository.is_empty() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": own.repository }]);
    }
    component
}

/// Returns the terms of each third-party crate, each text once.
pub(super) fn licences(builder: &Builder, crates: &[Crate]) -> Result<String, String> {
    let accepted = accepted(&files::read(&builder.root.join("deny.toml"))?)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut summary = String::from("What the programs of Thruway are made of, and its terms.\n\n");
    for own in crates.iter().filter(|own| own.is_foreign) {
        if !is_accepted(&own.licence, &accepted) {
            return Err(format!("{} {} is under {}", own.name, own.version, own.licence));
        }
        let name = format!("{} {}", own.name, own.version);
        let _ = writeln!(summary, "{name:<34} {}", own.licence);
        for file in files::below(&own.folder)? {
            let is_at_top = file.parent() == Some(&own.folder);
            let named = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if is_at_top && LICENCES.iter().any(|start| named.starts_with(start)) {
                texts.entry(files::read(&file)?).or_default().push(name.clone());
            }
        }
    }
    for (text, owners) in texts {
        let _ = write!(
            summary,
            "\n================ {} ================\n\n{}\n",
            owners.join(", "),
            text.trim_end()
        );
    }
    Ok(summary + OF_GLIBC)
}

/// The licences that all code here may have, from the settings of cargo-deny; each crate offers one of them.
fn accepted(settings: &str) -> Result<Vec<String>, String> {
    let settings: Table = settings.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let list = settings.get("licenses").and_then(|licences| licences.get("allow"));
    let list = list.and_then(Value::as_array).ok_or("deny.toml allows no licence")?;
    Ok(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Whether one of the alternatives, with all of its parts, is accepted.
fn is_accepted(expression: &str, accepted: &[String]) -> bool {
    let plain = expression.replace(['(', ')'], "");
    let is_known = |licence: &str| {
        let licence = licence.trim();
        let plain = licence.split(" WITH ").next().unwrap_or(licence);
        accepted.iter().any(|own| own == plain)
    };
    match expression.contains(" AND ") {
        true => plain.split(" AND ").all(|part| part.split(" OR ").any(is_known)),
        false => plain.split(" OR ").any(is_known),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::crates;
    use super::super::platform::Processor;
    use super::*;

    #[test]
    fn every_crate_of_the_programs_may_be_used_and_is_in_the_bill() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let builder = Builder::new(root, Processor::X86_64).unwrap();
        let crates = crates::of_programs(&builder).unwrap();
        let terms = licences(&builder, &crates).unwrap();
        let bill: serde_json::Value =
            serde_json::from_str(&materials(&builder, &crates).unwrap()).unwrap();
        for name in ["clap", "rustix", "rb-sys"] {
            assert!(terms.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
        }
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), crates.len());
        let foreign = crates.iter().filter(|own| own.is_foreign).count();
        let hashed = components.iter().filter(|component| !component["hashes"].is_null()).count();
        assert_eq!(hashed, foreign, "Cargo.lock has a checksum of each");
    }

    #[test]
    fn one_choice_is_enough_and_all_parts_count() {
        let list = "[licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"Unicode-3.0\"]\n";
        let accepted = accepted(list).unwrap();
        for (expression, is_ours) in [
            ("MIT", true),
            ("GPL-3.0 OR MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
            ("MIT AND GPL-3.0", false),
            ("", false),
        ] {
            assert_eq!(is_accepted(expression, &accepted), is_ours, "{expression}");
        }
    }
}
