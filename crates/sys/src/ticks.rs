//! The CPU's cycle counter: the cheapest clock, consistent across CPUs, with a unit that depends on the machine.

/// Returns the number of ticks since some moment in the past.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, which accesses no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the number of ticks since some moment in the past.
#[cfg(target_arch = "aarch64")]
#[must_use]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: every program may read the virtual counter, and the instruction accesses no memory.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_goes_on() {
        let before = super::ticks();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(super::ticks() > before);
    }
}
