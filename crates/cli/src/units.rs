//! Formats numbers for people.

/// Formats a number with separators: `1234567` becomes `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate or a count, rounded to a whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive")]
pub(crate) fn whole(number: f64) -> String {
    thousands(number.round() as u64)
}

/// Formats nanoseconds with three digits, in a suitable unit.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn time(time_ns: u64) -> String {
    let time = time_ns as f64;
    match time_ns {
        0..1_000_000 => format!("{} µs", three_digits(time / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(time / 1e6)),
        _ => format!("{} s", three_digits(time / 1e9)),
    }
}

/// Formats bytes per second in powers of ten.
pub(crate) fn throughput(bytes_per_second: f64) -> String {
    let units = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")];
    let fits = units.iter().find(|(size, _)| bytes_per_second >= *size);
    let (size, unit) = fits.copied().unwrap_or((1.0, "B/s"));
    format!("{} {unit}", three_digits(bytes_per_second / size))
}

fn three_digits(number: f64) -> String {
    match number {
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_threes() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(thousands(number), text);
        }
        assert_eq!(whole(1999.6), "2,000");
    }

    #[test]
    fn a_time_has_three_digits_and_its_unit() {
        let cases = [
            (0, "0.00 µs"),
            (9_994, "9.99 µs"),
            (9_996, "10.0 µs"),
            (123_456, "123 µs"),
            (1_234_567, "1.23 ms"),
            (61_000_000_000, "61.0 s"),
        ];
        for (time_ns, text) in cases {
            assert_eq!(time(time_ns), text);
        }
    }

    #[test]
    fn throughput_has_its_unit() {
        assert_eq!(throughput(12.0), "12.0 B/s");
        assert_eq!(throughput(3_750_000_000.0), "3.75 GB/s");
    }
}
