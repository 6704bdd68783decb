//! Definitions of modules, constants and methods. Methods are safe functions.

use std::ffi::{CStr, c_int};
use std::mem::transmute;

use rb_sys::{VALUE, rb_define_module, rb_define_module_under};

use super::gvl::{Gvl, ProtectedCall};
use super::immediate::NIL;
use super::module::RModule;
use super::symbol::Symbol;

/// The type in which Ruby takes any function as a method.
type AnyFunction = unsafe extern "C" fn() -> VALUE;

/// A function that Ruby may call as a method, and its number of arguments. Ruby calls methods with the lock held and
/// catches their exceptions. So each function receives the proof of both as its first argument, and the receiver as
/// its second.
#[derive(Clone, Copy)]
pub(crate) struct Method {
    function: AnyFunction,
    arity: c_int,
}

/// A function without captures, which can be created from its type alone. Ruby passes no closure to a method.
trait Bare: Copy + 'static {
    fn get() -> Self {
        const { assert!(size_of::<Self>() == 0, "a function, or a closure that captures nothing") };
        // SAFETY: the value has no bytes. `Method` was made from a value of this type, so one exists.
        unsafe { std::ptr::NonNull::<Self>::dangling().read() }
    }
}

impl<F: Copy + 'static> Bare for F {}

impl Method {
    /// A method without arguments, `receiver.name`.
    pub(crate) fn of_0<F: Fn(ProtectedCall, VALUE) -> VALUE + Copy + 'static>(_: F) -> Self {
        unsafe extern "C" fn enter<F: Fn(ProtectedCall, VALUE) -> VALUE + Copy + 'static>(
            receiver: VALUE,
        ) -> VALUE {
            // SAFETY: Ruby calls methods with the lock held, and catches their exceptions.
            F::get()(unsafe { ProtectedCall::assume() }, receiver)
        }
        type Function = unsafe extern "C" fn(VALUE) -> VALUE;
        // SAFETY: Ruby calls the function with the arguments that the arity states: self alone.
        let function = unsafe { transmute::<Function, AnyFunction>(enter::<F>) };
        Self { function, arity: 0 }
    }

    /// A method with one argument, `receiver.name(a)`.
    pub(crate) fn of_1<F: Fn(ProtectedCall, VALUE, VALUE) -> VALUE + Copy + 'static>(_: F) -> Self {
        unsafe extern "C" fn enter<F: Fn(ProtectedCall, VALUE, VALUE) -> VALUE + Copy + 'static>(
            receiver: VALUE,
            one: VALUE,
        ) -> VALUE {
            // SAFETY: Ruby calls methods with the lock held, and catches their exceptions.
            F::get()(unsafe { ProtectedCall::assume() }, receiver, one)
        }
        type Function = unsafe extern "C" fn(VALUE, VALUE) -> VALUE;
        // SAFETY: Ruby calls the function with the arguments that the arity states: self and one argument.
        let function = unsafe { transmute::<Function, AnyFunction>(enter::<F>) };
        Self { function, arity: 1 }
    }

    /// A method with two arguments, `receiver.name(a, b)`.
    pub(crate) fn of_2<F>(_: F) -> Self
    where
        F: Fn(ProtectedCall, VALUE, VALUE, VALUE) -> VALUE + Copy + 'static,
    {
        unsafe extern "C" fn enter<F>(receiver: VALUE, one: VALUE, two: VALUE) -> VALUE
        where
            F: Fn(ProtectedCall, VALUE, VALUE, VALUE) -> VALUE + Copy + 'static,
        {
            // SAFETY: Ruby calls methods with the lock held, and catches their exceptions.
            F::get()(unsafe { ProtectedCall::assume() }, receiver, one, two)
        }
        type Function = unsafe extern "C" fn(VALUE, VALUE, VALUE) -> VALUE;
        // SAFETY: Ruby calls the function with the arguments that the arity states: self and two arguments.
        let function = unsafe { transmute::<Function, AnyFunction>(enter::<F>) };
        Self { function, arity: 2 }
    }

    /// A method with any number of arguments, `receiver.name(*arguments)`.
    pub(crate) fn of_any<F>(_: F) -> Self
    where
        F: Fn(ProtectedCall, VALUE, &[VALUE]) -> VALUE + Copy + 'static,
    {
        unsafe extern "C" fn enter<F>(count: c_int, all: *const VALUE, receiver: VALUE) -> VALUE
        where
            F: Fn(ProtectedCall, VALUE, &[VALUE]) -> VALUE + Copy + 'static,
        {
            // Without arguments, Ruby may pass a null pointer.
            let all = match count.unsigned_abs() as usize {
                0 => &[],
                // SAFETY: Ruby passes `count` arguments, which outlive the call.
                count => unsafe { std::slice::from_raw_parts(all, count) },
            };
            // SAFETY: Ruby calls methods with the lock held, and catches their exceptions.
            F::get()(unsafe { ProtectedCall::assume() }, receiver, all)
        }
        type Function = unsafe extern "C" fn(c_int, *const VALUE, VALUE) -> VALUE;
        // SAFETY: Ruby calls the function as the arity -1 states: with a count, a pointer to the arguments, and self.
        let function = unsafe { transmute::<Function, AnyFunction>(enter::<F>) };
        Self { function, arity: -1 }
    }
}

/// Returns the module of that name, and creates it if necessary. Raises TypeError if the constant is another object.
pub(crate) fn module(_: ProtectedCall, name: &'static CStr) -> VALUE {
    // SAFETY: the name ends in NUL, and is a constant's; exceptions are caught further up.
    unsafe { rb_define_module(name.as_ptr()) }
}

/// Returns the module of that name within another, and creates it if necessary. Raises as [`module`] does.
pub(crate) fn module_under(_: ProtectedCall, outer: VALUE, name: &'static CStr) -> VALUE {
    // SAFETY: as above.
    unsafe { rb_define_module_under(outer, name.as_ptr()) }
}

/// Defines a class whose objects only Rust code creates. Raises TypeError if the constant is another object.
pub(crate) fn class_under(
    ruby: ProtectedCall,
    outer: RModule,
    name: &'static CStr,
) -> Option<RModule> {
    let object = RModule::object().value();
    // SAFETY: the name ends in NUL, and is a constant's; exceptions are caught further up.
    let class = unsafe { rb_sys::rb_define_class_under(outer.value(), name.as_ptr(), object) };
    // SAFETY: the value is a class.
    unsafe { rb_sys::rb_undef_alloc_func(class) };
    RModule::of(ruby.gvl(), class)
}

/// Returns a class without a name, whose objects only Rust code creates.
pub(crate) fn anonymous_class(ruby: ProtectedCall) -> RModule {
    // SAFETY: any class can be derived from `Object`; exceptions are caught further up.
    let class = unsafe { rb_sys::rb_class_new(RModule::object().value()) };
    // SAFETY: the value is a class.
    unsafe { rb_sys::rb_undef_alloc_func(class) };
    RModule::of(ruby.gvl(), class).unwrap_or_else(RModule::object)
}

/// Sets a constant of a module. Raises FrozenError.
pub(crate) fn constant(ruby: ProtectedCall, outer: RModule, name: &'static CStr, value: VALUE) {
    let name = Symbol::new(ruby.gvl(), name).id();
    // SAFETY: the name is a constant's; exceptions are caught further up.
    unsafe { rb_sys::rb_const_set(outer.value(), name, value) };
}

/// Defines `receiver.name`, unless the receiver is frozen or takes no singleton methods.
pub(crate) fn singleton_method(gvl: Gvl, receiver: VALUE, name: &'static CStr, method: Method) {
    let Method { function, arity } = method;
    // SAFETY: the name ends in NUL, and the function takes what the arity says; exceptions are caught further up.
    gvl.protect(|_| unsafe {
        rb_sys::rb_define_singleton_method(receiver, name.as_ptr(), Some(function), arity);
    });
}

/// Defines a public method of a class or module, unless the module is frozen.
pub(crate) fn method(gvl: Gvl, class: RModule, name: &'static CStr, method: Method) {
    let Method { function, arity } = method;
    // SAFETY: as above.
    gvl.protect(|_| unsafe {
        rb_sys::rb_define_method(class.value(), name.as_ptr(), Some(function), arity);
    });
}

/// Defines a private method of a class or module, unless the module is frozen.
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

/// Defines an alias of a method of a class or module, if the method exists and the module is not frozen.
pub(crate) fn alias(gvl: Gvl, class: RModule, name: &'static CStr, old: &'static CStr) {
    // SAFETY: both names end in NUL; exceptions are caught further up.
    gvl.protect(|_| unsafe {
        rb_sys::rb_define_alias(class.value(), name.as_ptr(), old.as_ptr());
    });
}

/// Runs `work` without Ruby's warnings about methods that are defined twice.
pub(crate) fn quietly(_: Gvl, work: impl FnOnce()) {
    // SAFETY: the place is valid for the whole process.
    let place = unsafe { rb_sys::rb_ruby_verbose_ptr() };
    // SAFETY: the variable is written with the lock held only.
    let verbose = unsafe { place.replace(NIL) };
    work();
    // SAFETY: as above.
    unsafe { place.write(verbose) };
}

/// Calls a function when Ruby exits, after all functions that are registered later.
pub(crate) fn at_exit<F: Fn() + Copy + 'static>(_: Gvl, _: F) {
    unsafe extern "C" fn run<F: Fn() + Copy + 'static>(_: VALUE) {
        F::get()();
    }
    // SAFETY: the function lives as long as the process, and needs no data.
    unsafe { rb_sys::rb_set_end_proc(Some(run::<F>), NIL) };
}
