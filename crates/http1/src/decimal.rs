//! Decimal numbers, as in lengths.

/// Any number with this many digits is below 2^64.
const SAFE_DIGITS: usize = 19;

/// Appends `number` to `out`.
pub fn write(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    while at == digits.len() || rest > 0 {
        at -= 1;
        // The remainder is below ten.
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Parses a sequence of digits, without a sign or white space. Returns `None` if it is empty or the number is at least
/// 2^64.
#[must_use]
pub fn parse(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let is_safe = digits.len() <= SAFE_DIGITS;
    let mut number = 0_u64;
    for digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        let value = u64::from(value);
        number = if is_safe {
            number * 10 + value
        } else {
            number.checked_mul(10)?.checked_add(value)?
        };
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_digits_are_a_number() {
        for wrong in ["", "+1", "-1", " 1", "1 ", "1,2", "0x1", "1a", "18446744073709551616"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse(b"000000000000000000000007"), Some(7));
    }

    proptest! {
        #[test]
        fn written_numbers_are_parsed(number in any::<u64>()) {
            let mut out = b"x".to_vec();
            write(&mut out, number);
            prop_assert_eq!(String::from_utf8_lossy(&out), format!("x{number}"));
            prop_assert_eq!(parse(&out[1..]), Some(number));
        }
    }
}
