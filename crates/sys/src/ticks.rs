//! The processor's clock: the cheapest that there is, the same on all processors, in its own unit.

/// Ticks since some moment in the past.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it, and it touches nothing.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks since some moment in the past.
#[cfg(target_arch = "aarch64")]
#[must_use]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: the virtual counter is readable by every program and touches nothing.
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
