use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each precompressed suffix of the static site, what decodes it, and what makes it.
const VARIANTS: [(&str, &str, &str); 3] =
    [("gz", "gzip", "gzip -9nk"), ("br", "brotli", "brotli -Zk"), ("zst", "zstd", "zstd -19k")];

#[test]
fn the_static_sites_variants_are_those_of_its_files() {
    let mut compared = 0;
    for file in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/static_site")) {
        for (suffix, program, makes) in VARIANTS {
            if file.extension().is_some_and(|own| own == suffix) {
                let decoded = Command::new(program).arg("-dc").arg(&file).output();
                let original = fs::read(file.with_extension("")).unwrap();
                let same = decoded.expect("it is installed by scripts/setup").stdout == original;
                assert!(same, "{} is stale: make it again with {makes}", file.display());
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 15, "five files have three variants each");
}

/// Every file below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is a folder").flatten().map(|entry| entry.path());
    let (folders, mut found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    found.extend(folders.iter().flat_map(|folder| files(folder)));
    found
}
