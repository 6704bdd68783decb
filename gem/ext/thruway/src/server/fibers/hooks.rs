//! `Thruway::FiberScheduler`: the methods that Ruby calls where a fiber would block its thread. What needs blocks or
//! threads of Ruby's is in `gem/lib/thruway/server/fiber_scheduler.rb`.

use std::os::fd::IntoRawFd;

use rb_sys::VALUE;
use rustix::process::{Pid, PidfdFlags};
use thruway_roles::{AwaitedEvent, DeadlineId, Wake};

use super::scheduler::{FiberScheduler, TYPE};
use super::transfers;
use crate::ruby::define::{self, Method};
use crate::ruby::{
    Gvl, NIL, ProtectedCall, RArray, RModule, RString, TRUE, boolean, fiber, number, raise,
};

/// Defines `Thruway::FiberScheduler`.
pub(in crate::server) fn define(ruby: ProtectedCall, thruway: RModule) {
    let Some(class) = define::class_under(ruby, thruway, c"FiberScheduler") else { return };
    let gvl = ruby.gvl();
    define::singleton_method(gvl, class.value(), c"install", Method::of_0(install));
    define::method(gvl, class, c"block", Method::of_any(block));
    define::method(gvl, class, c"unblock", Method::of_2(unblock));
    define::method(gvl, class, c"kernel_sleep", Method::of_any(kernel_sleep));
    define::method(gvl, class, c"yield", Method::of_0(pass));
    define::method(gvl, class, c"io_wait", Method::of_any(io_wait));
    define::method(gvl, class, c"io_read", Method::of_any(transfers::io_read));
    define::method(gvl, class, c"io_write", Method::of_any(transfers::io_write));
    define::method(gvl, class, c"io_pread", Method::of_any(transfers::io_pread));
    define::method(gvl, class, c"io_pwrite", Method::of_any(transfers::io_pwrite));
    define::method(gvl, class, c"io_close", Method::of_1(io_close));
    define::method(gvl, class, c"fiber_interrupt", Method::of_2(fiber_interrupt));
    define::method(gvl, class, c"scheduler_close", Method::of_0(close));
    define::method(gvl, class, c"abandon", Method::of_0(abandon));
    define::method(gvl, class, c"start", Method::of_1(start));
    define::method(gvl, class, c"finish", Method::of_0(finish));
    define::method(gvl, class, c"set_deadline", Method::of_2(set_deadline));
    define::method(gvl, class, c"cancel_deadline", Method::of_1(cancel_deadline));
    define::method(gvl, class, c"open_process", Method::of_1(open_process));
}

/// `FiberScheduler.install`: makes a new scheduler that of the calling thread, whose running fiber is its root.
fn install(ruby: ProtectedCall, class: VALUE) -> VALUE {
    let made = FiberScheduler::new(ruby.gvl()).map_err(|error| error.to_string());
    match made {
        Ok(scheduler) => {
            let scheduler = TYPE.wrap(ruby.gvl(), class, Box::new(scheduler));
            fiber::set_scheduler(ruby, scheduler);
            scheduler
        }
        Err(error) => raise::runtime_error(ruby, RString::binary(ruby.gvl(), error.as_bytes())),
    }
}

/// Converts a time in seconds, which may be nil, to microseconds. Raises TypeError, and ArgumentError for a negative
/// time.
fn microseconds(ruby: ProtectedCall, seconds: VALUE) -> Option<u64> {
    if seconds == NIL {
        return None;
    }
    let seconds = number::to_f64(ruby, seconds);
    if seconds.is_nan() || seconds < 0.0 {
        let text = b"time interval must not be negative";
        raise::argument_error(ruby, RString::binary(ruby.gvl(), text));
    }
    // A time that does not fit is longer than any process lives.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the conversion saturates, and the number is not negative"
    )]
    Some((seconds * 1e6).ceil() as u64)
}

/// `block(blocker, timeout = nil)`: waits until the fiber is unblocked. Returns false if the time is over.
fn block(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    let timeout_us = microseconds(ruby, given.get(1).copied().unwrap_or(NIL));
    let wake = TYPE.get(ruby, &this).suspend(ruby, AwaitedEvent::Unblock, timeout_us);
    boolean(wake != Wake::Expired)
}

/// `unblock(blocker, fiber)`: ends the wait of `block`. Any thread may call it.
fn unblock(ruby: ProtectedCall, this: VALUE, _blocker: VALUE, fiber: VALUE) -> VALUE {
    TYPE.get(ruby, &this).unblock(fiber);
    NIL
}

/// `kernel_sleep(seconds = nil)`: without a number, the sleep has no end.
fn kernel_sleep(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    let timeout_us = microseconds(ruby, given.first().copied().unwrap_or(NIL));
    TYPE.get(ruby, &this).suspend(ruby, AwaitedEvent::Nothing, timeout_us);
    TRUE
}

/// `yield`: lets other fibers run that are ready.
fn pass(ruby: ProtectedCall, this: VALUE) -> VALUE {
    TYPE.get(ruby, &this).pass(ruby);
    NIL
}

/// `io_wait(io, events, timeout)`: returns the events that are there, or false if the time is over. Without a timeout,
/// that of the IO counts, as in Ruby's own wait.
fn io_wait(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    let at = |index| given.get(index).copied().unwrap_or(NIL);
    let descriptor = fiber::descriptor(ruby, at(0));
    let events = u32::try_from(number::to_u64(ruby, at(1))).unwrap_or(0);
    let timeout = if at(2) == NIL { transfers::io_timeout(ruby.gvl(), at(0)) } else { at(2) };
    let timeout_us = microseconds(ruby, timeout);
    let awaited = AwaitedEvent::Io { descriptor, events };
    match TYPE.get(ruby, &this).suspend(ruby, awaited, timeout_us) {
        Wake::Io(found) => number::from_u64(ruby.gvl(), found.into()),
        _ => boolean(false),
    }
}

/// `io_close(descriptor)`: the fibers that wait for the descriptor look again. Ruby closes it.
fn io_close(ruby: ProtectedCall, this: VALUE, descriptor: VALUE) -> VALUE {
    let descriptor = number::small(descriptor).and_then(|number| i32::try_from(number).ok());
    TYPE.get(ruby, &this).end_waits_for(descriptor.unwrap_or(-1));
    boolean(false)
}

/// `fiber_interrupt(fiber, exception)`: raises the exception in a fiber that waits. Since Ruby 4.0, `IO#close` calls
/// the method for each fiber that another thread has in a call on the IO, and waits until the fiber has left the call.
fn fiber_interrupt(ruby: ProtectedCall, this: VALUE, fiber: VALUE, error: VALUE) -> VALUE {
    boolean(TYPE.get(ruby, &this).interrupt_fiber(ruby.gvl(), fiber, error))
}

/// `scheduler_close`: Ruby calls it at the end of the thread. A server has ended its fibers by then. In a thread
/// without one, the fibers run to their end.
fn close(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let ended = TYPE.get(ruby, &this).run_to_end(ruby.gvl());
    if let Err(raised) = ended {
        raised.resume(ruby);
    }
    NIL
}

/// `abandon`: forgets the fibers, which another process has.
fn abandon(ruby: ProtectedCall, this: VALUE) -> VALUE {
    TYPE.get(ruby, &this).abandon();
    NIL
}

/// `start(fiber)`: runs a new fiber, until it waits for the first time.
fn start(ruby: ProtectedCall, this: VALUE, fiber: VALUE) -> VALUE {
    TYPE.get(ruby, &this).start(ruby, fiber);
    fiber
}

/// `finish`: the calling fiber, which `start` has run, is about to end.
fn finish(ruby: ProtectedCall, this: VALUE) -> VALUE {
    TYPE.get(ruby, &this).end_current();
    NIL
}

/// `set_deadline(seconds, error)`: `raise(*error)` interrupts the wait of the calling task then. Returns a number.
fn set_deadline(ruby: ProtectedCall, this: VALUE, seconds: VALUE, error: VALUE) -> VALUE {
    let timeout_us = microseconds(ruby, seconds).unwrap_or(u64::MAX);
    let Some(error) = RArray::of(ruby.gvl(), error) else {
        let text = b"the error is an Array";
        raise::type_error(ruby, RString::binary(ruby.gvl(), text));
    };
    let DeadlineId(id) = TYPE.get(ruby, &this).set_deadline(ruby, timeout_us, error);
    number::from_u64(ruby.gvl(), id)
}

/// `cancel_deadline(number)`.
fn cancel_deadline(ruby: ProtectedCall, this: VALUE, deadline: VALUE) -> VALUE {
    TYPE.get(ruby, &this).cancel_deadline(DeadlineId(number::to_u64(ruby, deadline)));
    NIL
}

/// `open_process(pid)`: returns a descriptor that is readable once the child process has ended; nil if there is none.
fn open_process(ruby: ProtectedCall, _this: VALUE, pid: VALUE) -> VALUE {
    let pid = number::small(pid).and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let opened = pid.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    opened.map_or(NIL, |opened| descriptor_number(ruby.gvl(), opened.into_raw_fd()))
}

fn descriptor_number(_: Gvl, descriptor: i32) -> VALUE {
    rb_sys::LONG2NUM(descriptor.into())
}
