//! Reads the UUID of a library's build from the load commands of its image (64-bit Mach-O, macOS).

const MAGIC: u32 = 0xfeed_facf;
const LC_UUID: u32 = 0x1b;

/// The header starts with the magic number; the size of the load commands in bytes is at offset 20.
const HEADER_BYTES: usize = 32;
const COMMANDS_BYTES_AT: usize = 20;

/// The size of a command's head: its kind and its length.
const COMMAND_BYTES: usize = 8;

/// Returns the load commands of the image at `base`, or `None` if the image is not a 64-bit Mach-O.
///
/// # Safety
/// `base` must be the address of a loaded image that is never unloaded.
#[cfg(target_os = "macos")]
pub(crate) unsafe fn load_commands(base: *const u8) -> Option<&'static [u8]> {
    // SAFETY: an image starts with its header.
    let header = unsafe { base.cast::<[u8; HEADER_BYTES]>().read() };
    let length = commands_bytes(&header)?;
    // SAFETY: the commands follow the header.
    Some(unsafe { std::slice::from_raw_parts(base.wrapping_add(HEADER_BYTES), length) })
}

/// Returns the size of the load commands in bytes.
fn commands_bytes(header: &[u8; HEADER_BYTES]) -> Option<usize> {
    if number(header, 0)? != MAGIC {
        return None;
    }
    usize::try_from(number(header, COMMANDS_BYTES_AT)?).ok()
}

/// Returns the UUID in `commands`, if there is one.
pub(crate) fn uuid(mut commands: &[u8]) -> Option<&[u8]> {
    loop {
        let (kind, length) = (number(commands, 0)?, number(commands, 4)?);
        let length = usize::try_from(length).ok().filter(|length| *length >= COMMAND_BYTES)?;
        let (command, rest) = commands.split_at_checked(length)?;
        if kind == LC_UUID {
            return command.get(COMMAND_BYTES..);
        }
        commands = rest;
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn the_uuid_is_found_behind_other_commands() {
        let header = bytes(&[MAGIC, 0x0100_000c, 0, 6, 2, 40, 0, 0]);
        assert_eq!(commands_bytes(header.first_chunk().unwrap()), Some(40));
        let commands = bytes(&[0x19, 16, 7, 7, LC_UUID, 24, 1, 2, 3, 4]);
        assert_eq!(uuid(&commands), Some(&*bytes(&[1, 2, 3, 4])));
    }

    #[test]
    fn damaged_commands_and_32_bit_images_have_no_uuid() {
        let header = bytes(&[0xfeed_face, 0, 0, 0, 0, 8, 0, 0]);
        assert_eq!(commands_bytes(header.first_chunk().unwrap()), None, "it is of 32 bits");
        assert_eq!(uuid(&bytes(&[0x19, 8])), None);
        assert_eq!(uuid(&bytes(&[0x19, 0, LC_UUID, 24])), None, "it would never end");
        assert_eq!(uuid(&bytes(&[LC_UUID, 24, 1])), None, "it is cut off");
    }
}
