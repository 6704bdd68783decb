//! The media types of files, by the suffixes of their names.

use std::borrow::Cow;
use std::sync::Arc;

use thruway_resolve::Name;

/// The maximum number of suffixes kept: a site has few, and lookups search them one by one.
const KEPT_MAX: usize = 16;

/// The type of files with one suffix.
#[derive(Debug, Clone)]
pub(super) struct Media {
    /// The value of `Content-Type`.
    pub(super) name: Arc<str>,
    /// Whether the file is worth compressing and may thus have compressed variants.
    pub(super) is_compressible: bool,
}

/// The most recent suffixes and their media types.
#[derive(Debug, Default)]
pub(super) struct MediaTypes {
    kept: Vec<(Vec<u8>, Media)>,
    /// The index of the oldest entry, once there is no room.
    oldest: usize,
}

impl MediaTypes {
    /// The media type for the name's suffix. Text without a charset of its own is UTF-8.
    pub(super) fn of(&mut self, name: &Name) -> Media {
        let file = name.components().next_back().unwrap_or_default();
        let suffix = suffix_of(file);
        if let Some((_, media)) = self.kept.iter().find(|(other, _)| other == suffix) {
            return media.clone();
        }
        let media = guess(file);
        let entry = (suffix.to_vec(), media.clone());
        if self.kept.len() < KEPT_MAX {
            self.kept.push(entry);
        } else {
            self.kept[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % KEPT_MAX;
        }
        media
    }
}

/// The part after the last dot, unless the dot is the first byte.
fn suffix_of(file: &[u8]) -> &[u8] {
    match file.iter().rposition(|byte| *byte == b'.') {
        None | Some(0) => b"",
        Some(dot) => &file[dot + 1..],
    }
}

fn guess(file: &[u8]) -> Media {
    let file: Cow<'_, str> = String::from_utf8_lossy(file);
    let media = mime_guess::from_path(&*file).first_or_octet_stream();
    let is_bare_text =
        media.type_() == mime_guess::mime::TEXT && media.get_param("charset").is_none();
    let name = if is_bare_text { format!("{media}; charset=utf-8") } else { media.to_string() };
    Media { is_compressible: is_compressible(&name), name: name.into() }
}

fn is_compressible(media: &str) -> bool {
    const ENDS: [&str; 4] = ["json", "xml", "javascript", "wasm"];
    const FONTS: [&str; 3] = ["font/ttf", "font/otf", "application/vnd.ms-fontobject"];
    media.starts_with("text/")
        || ENDS.iter().any(|end| media.ends_with(end))
        || FONTS.contains(&media)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_the_type_that_is_guessed_for_it_alone() {
        let mut types = MediaTypes::default();
        let suffixes = [
            "txt", "html", "CSS", "js", "json", "svg", "png", "jpg", "gif", "webp", "pdf", "xml",
            "wasm", "ttf", "otf", "woff2", "ico", "mp4", "none", "Txt", "gz",
        ];
        for round in 0..3 {
            for suffix in suffixes {
                let names = ["/a.b.", "/.x.", "/d.e/"].map(|start| format!("{start}{suffix}"));
                let first = "/.".to_owned() + suffix;
                for name in names.iter().chain([&first]) {
                    let file = name.rsplit('/').next().unwrap();
                    let media = types.of(&Name::from_url_path(name.as_bytes()).unwrap());
                    let alone = guess(file.as_bytes());
                    assert_eq!(media.name, alone.name, "{name}, round {round}");
                    assert_eq!(media.is_compressible, alone.is_compressible, "{name}");
                    assert!(types.kept.len() <= KEPT_MAX);
                }
            }
        }
        let of_text = types.of(&Name::from_url_path(b"/a.txt").unwrap());
        assert_eq!((&*of_text.name, of_text.is_compressible), ("text/plain; charset=utf-8", true));
    }
}
