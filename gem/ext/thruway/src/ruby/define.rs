//! Definitions: modules, constants, and methods that are safe functions.

use std::ffi::{CStr, c_int};
use std::mem::transmute;

use rb_sys::{VALUE, rb_define_module, rb_define_module_under};

use super::gvl::{Gvl, Protected};
use super::immediate::NIL;
use super::module::RModule;
use super::symbol::Symbol;

/// How Ruby calls any function that it is given as a method.
type AnyFunction = unsafe extern "C" fn() -> VALUE;

/// A function that Ruby may call as a method, and with how many arguments. Ruby calls methods with the lock held and
/// catches what they raise, so each gets that proof first, and then its receiver.
#[derive(Clone, Copy)]
pub(crate) struct Method {
    function: AnyFunction,
    arity: c_int,
}

/// What a function of no size is made of again, where Ruby can hand over no closure.
trait Bare: Copy + 'static {
    fn get() -> Self {
        const { assert!(size_of::<Self>() == 0, "a function, or a closure that captures nothing") };
        // SAFETY: it has no bytes; `Method` was made from a value of this type, so that there is one.
        unsafe { std::ptr::NonNull::<Self>::dangling().read() }
    }
}

impl<F: Copy + 'static> Bare for F {}

impl Method {
    /// `receiver.name`
    pub(crate) fn of_0<F: Fn(Protected, VALUE) -> VALUE + Copy + 'static>(_: F) -> Self {
        unsafe extern "C" fn enter<F: Fn(Protected, VALUE) -> VALUE + Copy + 'static>(
            receiver: VALUE,
        ) -> VALUE {
            // SAFETY: Ruby calls methods with the lock held, and catches.
            F::get()(unsafe { Protected::assume() }, receiver)
        }
        type Function = unsafe extern "C" fn(VALUE) -> VALUE;
        // SAFETY: Ruby calls the function with as many values as the arity says: self alone.
        let function = unsafe { transmute::<Function, AnyFunction>(enter::<F>) };
        Self { function, arity: 0 }
    }

    /// `receiver.name(a)`
    pub(crate) fn of_1<F: Fn(Protected, VALUE, VALUE) -> VALUE + Copy + 'static>(_: F) -> Self {
        unsafe extern "C" fn enter<F: Fn(Protected, VALUE, VALUE) -> VALUE + Copy + 'static>(
            receiver: VALUE,
            one: VALUE,
        ) -> VALUE {
            // SAFETY: Ruby calls methods with the lock held, and catches.
            F::get()(unsafe { Protected::assume() }, receiver, one)
        }
        type Function = unsafe extern "C" fn(VALUE, VALUE) -> VALUE;
        // SAFETY: Ruby calls the function with as many values as the arity says: self and one argument.
        let function = unsafe { transmute::<Function, AnyFunction>(enter::<F>) };
        Self { function, arity: 1 }
    }

    /// `receiver.name(a, b)`
    pub(crate) fn of_2<F>(_: F) -> Self
    where
        F: Fn(Protected, VALUE, VALUE, VALUE) -> VALUE + Copy + 'static,
    {
        unsafe extern "C" fn enter<F>(receiver: VALUE, one: VALUE, two: VALUE) -> VALUE
        where
            F: Fn(Protected, VALUE, VALUE, VALUE) -> VALUE + Copy + 'static,
        {
            // SAFETY: Ruby calls methods with the lock held, and catches.
            F::get()(unsafe { Protected::assume() }, receiver, one, two)
        }
        type Function = unsafe extern "C" fn(VALUE, VALUE, VALUE) -> VALUE;
        // SAFETY: Ruby calls the function with as many values as the arity says: self and two arguments.
        let function = unsafe { transmute::<Function, AnyFunction>(enter::<F>) };
        Self { function, arity: 2 }
    }

    /// `receiver.name(*arguments)`
    pub(crate) fn of_any<F>(_: F) -> Self
    where
        F: Fn(Protected, VALUE, &[VALUE]) -> VALUE + Copy + 'static,
    {
        unsafe extern "C" fn enter<F>(count: c_int, all: *const VALUE, receiver: VALUE) -> VALUE
        where
            F: Fn(Protected, VALUE, &[VALUE]) -> VALUE + Copy + 'static,
        {
            // For no arguments it may pass null.
            let all = match count.unsigned_abs() as usize {
                0 => &[],
                // SAFETY: Ruby passes as many arguments as it says, which outlive the call.
                count => unsafe { std::slice::from_raw_parts(all, count) },
            };
            // SAFETY: Ruby calls methods with the lock held, and catches.
            F::get()(unsafe { Protected::assume() }, receiver, all)
        }
        type Function = unsafe extern "C" fn(c_int, *const VALUE, VALUE) -> VALUE;
        // SAFETY: Ruby calls the function with a count, that many values, and self, as the arity -1 says.
        let function = unsafe { transmute::<Function, AnyFunction>(enter::<F>) };
        Self { function, arity: -1 }
    }
}

/// The module of that name, made if it is not there. Raises TypeError if the name is another object's.
pub(crate) fn module(_: Protected, name: &'static CStr) -> VALUE {
    // SAFETY: the name ends in NUL, and is a constant's; what it raises is caught.
    unsafe { rb_define_module(name.as_ptr()) }
}

/// The module of that name in another one, made if it is not there. Raises as [`module`] does.
pub(crate) fn module_under(_: Protected, outer: VALUE, name: &'static CStr) -> VALUE {
    // SAFETY: as above.
    unsafe { rb_define_module_under(outer, name.as_ptr()) }
}

/// Defines a class in a module whose objects only Rust makes. Raises TypeError if the name is another object's.
pub(crate) fn class_under(ruby: Protected, outer: RModule, name: &'static CStr) -> Option<RModule> {
    let object = RModule::object().value();
    // SAFETY: the name ends in NUL, and is a constant's; what it raises is caught.
    let class = unsafe { rb_sys::rb_define_class_under(outer.value(), name.as_ptr(), object) };
    // SAFETY: it is a class.
    unsafe { rb_sys::rb_undef_alloc_func(class) };
    RModule::of(ruby.gvl(), class)
}

/// A class without a name whose objects only Rust makes.
pub(crate) fn anonymous_class(ruby: Protected) -> RModule {
    // SAFETY: any class can be derived from `Object`; what it raises is caught.
    let class = unsafe { rb_sys::rb_class_new(RModule::object().value()) };
    // SAFETY: it is a class.
    unsafe { rb_sys::rb_undef_alloc_func(class) };
    RModule::of(ruby.gvl(), class).unwrap_or_else(RModule::object)
}

/// Sets a constant of a module. Raises FrozenError.
pub(crate) fn constant(ruby: Protected, outer: RModule, name: &'static CStr, value: VALUE) {
    let name = Symbol::new(ruby.gvl(), name).id();
    // SAFETY: the name is a constant's; what it raises is caught.
    unsafe { rb_sys::rb_const_set(outer.value(), name, value) };
}

/// Defines `receiver.name`, unless the receiver takes no methods.
pub(crate) fn singleton_method(gvl: Gvl, receiver: VALUE, name: &'static CStr, method: Method) {
    let Method { function, arity } = method;
    // SAFETY: the name ends in NUL, and the function takes what the arity says; what it raises is caught.
    gvl.protect(|_| unsafe {
        rb_sys::rb_define_singleton_method(receiver, name.as_ptr(), Some(function), arity);
    });
}

/// Defines a public method of a class or a module, unless that is frozen.
pub(crate) fn method(gvl: Gvl, class: RModule, name: &'static CStr, method: Method) {
    let Method { function, arity } = method;
    // SAFETY: as above.
    gvl.protect(|_| unsafe {
        rb_sys::rb_define_method(class.value(), name.as_ptr(), Some(function), arity);
    });
}

/// Defines a private method of a class or a module, unless that is frozen.
pub(crate) fn private_method(gvl: Gvl, class: RModule, name: &'static CStr, method: Method) {
    let Method { function, arity } = method;
    // SAFETY: as above.
    gvl.protect(|_| unsafe {
        rb_sys::rb_define_private_method(class.value(), name.as_ptr(), Some(function), arity);
    });
}

/// Defines a private `receiver.name`, as [`private_method`] does.
pub(crate) fn private_singleton_method(
    gvl: Gvl,
    receiver: RModule,
    name: &'static CStr,
    method: Method,
) {
    private_method(gvl, receiver.singleton_class(gvl), name, method);
}

/// Gives a method of a class or a module another name, if it has one of that name and is not frozen.
pub(crate) fn alias(gvl: Gvl, class: RModule, name: &'static CStr, old: &'static CStr) {
    // SAFETY: both names end in NUL; what it raises is caught.
    gvl.protect(|_| unsafe {
        rb_sys::rb_define_alias(class.value(), name.as_ptr(), old.as_ptr());
    });
}

/// Runs without Ruby's remarks about methods that are defined a second time.
pub(crate) fn quietly(_: Gvl, work: impl FnOnce()) {
    // SAFETY: the place is valid for the whole process.
    let place = unsafe { rb_sys::rb_ruby_verbose_ptr() };
    // SAFETY: it is written with the lock held only.
    let verbose = unsafe { place.replace(NIL) };
    work();
    // SAFETY: as above.
    unsafe { place.write(verbose) };
}

/// Calls a function when Ruby ends, after everything that is registered from now on.
pub(crate) fn at_exit<F: Fn() + Copy + 'static>(_: Gvl, _: F) {
    unsafe extern "C" fn run<F: Fn() + Copy + 'static>(_: VALUE) {
        F::get()();
    }
    // SAFETY: the function lives as long as the process, and needs no data.
    unsafe { rb_sys::rb_set_end_proc(Some(run::<F>), NIL) };
}
