//! The interpreter lock as a value: whoever has one may touch Ruby objects.
//!
//! Calls that can raise exist only on [`Protected`], which is given out inside [`Gvl::protect`]. Ruby
//! unwinds by `longjmp`: no value with a destructor may live across a call on it.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::marker::PhantomData;

use rb_sys::{ID, Qfalse, Qnil, Qtrue, VALUE, ruby_value_type};

/// Proof that this thread holds the interpreter gvl.
#[derive(Clone, Copy)]
pub(super) struct Gvl(PhantomData<*const ()>);

/// Proof that a Ruby exception is caught: this thread may call what raises.
#[derive(Clone, Copy)]
pub(super) struct Protected(Gvl);

/// What was raised instead of an answer: an exception, or Ruby's own business (a thread's end).
#[derive(Clone, Copy)]
pub(super) struct Raised {
    state: c_int,
    pub(super) error: VALUE,
}

/// Ruby's `nil`.
pub(super) const NIL: VALUE = Qnil as VALUE;

impl Gvl {
    /// # Safety
    /// This thread holds the interpreter lock for as long as the value is used.
    pub(super) unsafe fn assume() -> Self {
        Self(PhantomData)
    }

    /// A new String of bytes.
    pub(super) fn string(self, bytes: &[u8]) -> VALUE {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        unsafe { rb_sys::rb_str_new(pointer(bytes), length(bytes)) }
    }

    /// The one frozen String with these bytes. It lives as long as someone refers to it.
    pub(super) fn interned(self, bytes: &[u8]) -> VALUE {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        unsafe { rb_sys::rb_interned_str(pointer(bytes), length(bytes)) }
    }

    /// Another String with the same bytes, which are copied when either is changed.
    pub(super) fn dup_string(self, string: VALUE) -> VALUE {
        // SAFETY: `string` is a String.
        unsafe { rb_sys::rb_str_dup(string) }
    }

    /// The String as it is now, whatever happens to `string` later.
    pub(super) fn frozen_string(self, string: VALUE) -> VALUE {
        // SAFETY: `string` is a String.
        unsafe { rb_sys::rb_str_new_frozen(string) }
    }

    /// A new object of a class that Ruby defines, without a call of `initialize`.
    pub(super) fn new_object(self, class: VALUE) -> VALUE {
        // SAFETY: `class` is a class of plain objects.
        unsafe { rb_sys::rb_obj_alloc(class) }
    }

    /// Sets an instance variable of an object that was made here.
    pub(super) fn set_variable(self, object: VALUE, name: ID, value: VALUE) {
        // SAFETY: `object` is not frozen, and the name is one of an instance variable.
        unsafe { rb_sys::rb_ivar_set(object, name, value) };
    }

    /// An instance variable of any object, nil if it is not set.
    pub(super) fn variable(self, object: VALUE, name: ID) -> VALUE {
        // SAFETY: a live value, and the name is one of an instance variable.
        unsafe { rb_sys::rb_ivar_get(object, name) }
    }

    /// The name of an object's class.
    pub(super) fn class_name<'a>(self, object: VALUE) -> &'a CStr {
        // SAFETY: a live value.
        let name = unsafe { rb_sys::rb_obj_classname(object) };
        // SAFETY: Ruby keeps the names of classes for ever, and ends them with NUL; null is none.
        if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } }
    }

    pub(super) fn array(self) -> VALUE {
        // SAFETY: the lock is held.
        unsafe { rb_sys::rb_ary_new_capa(0) }
    }

    pub(super) fn push(self, array: VALUE, value: VALUE) {
        // SAFETY: `array` is an Array that was made here and is not frozen.
        unsafe { rb_sys::rb_ary_push(array, value) };
    }

    pub(super) fn dup_hash(self, hash: VALUE) -> VALUE {
        // SAFETY: `hash` is a Hash without a default procedure.
        unsafe { rb_sys::rb_hash_dup(hash) }
    }

    /// Sets a pair of a Hash that was made here; the key is an interned String.
    pub(super) fn set(self, hash: VALUE, key: VALUE, value: VALUE) {
        // SAFETY: `hash` is a Hash that is not frozen, and an interned String cannot fail to hash.
        unsafe { rb_sys::rb_hash_aset(hash, key, value) };
    }

    /// The value of an interned key, or nil.
    pub(super) fn at(self, hash: VALUE, key: VALUE) -> VALUE {
        // SAFETY: `hash` is a Hash, and an interned String cannot fail to hash.
        unsafe { rb_sys::rb_hash_lookup2(hash, key, NIL) }
    }

    pub(super) fn is(self, value: VALUE, kind: ruby_value_type) -> bool {
        // SAFETY: `value` is a live value.
        unsafe { rb_sys::RB_TYPE_P(value, kind) }
    }

    /// Whether `value` is an Array and of no class derived from it.
    pub(super) fn is_plain_array(self, value: VALUE) -> bool {
        // SAFETY: it is an Array, and so has a class.
        let class = || unsafe { rb_sys::rb_obj_class(value) };
        // SAFETY: Ruby sets the global once, before any extension is loaded.
        let plain = unsafe { rb_sys::rb_cArray };
        self.is(value, ruby_value_type::RUBY_T_ARRAY) && class() == plain
    }

    pub(super) fn array_length(self, array: VALUE) -> usize {
        // SAFETY: `array` is an Array.
        let length = unsafe { rb_sys::RARRAY_LEN(array) };
        usize::try_from(length).unwrap_or(0)
    }

    /// The element at `index`, nil behind the end.
    pub(super) fn element(self, array: VALUE, index: usize) -> VALUE {
        let index = c_long::try_from(index).unwrap_or(c_long::MAX);
        // SAFETY: `array` is an Array; any index is answered.
        unsafe { rb_sys::rb_ary_entry(array, index) }
    }

    /// The bytes of a String.
    ///
    /// # Safety
    /// Nothing changes or frees the String while the slice lives: Ruby code runs only when the slice
    /// is gone, and the String is on a stack or marked.
    pub(super) unsafe fn bytes<'a>(self, string: VALUE) -> &'a [u8] {
        // SAFETY: as this function's own.
        unsafe { crate::ruby::bytes(string) }
    }

    pub(super) fn responds_to(self, value: VALUE, method: ID) -> bool {
        // SAFETY: a live value, and the identifier of a name.
        unsafe { rb_sys::rb_respond_to(value, method) != 0 }
    }

    pub(super) fn current_thread(self) -> VALUE {
        // SAFETY: the lock is held by a Ruby thread.
        unsafe { rb_sys::rb_thread_current() }
    }

    /// Walks a Hash; `visit` may not raise unless the caller is [`Protected`].
    pub(super) fn each_pair<F: FnMut(VALUE, VALUE)>(self, hash: VALUE, mut visit: F) {
        unsafe extern "C" fn pair<F: FnMut(VALUE, VALUE)>(
            key: VALUE,
            value: VALUE,
            visit: VALUE,
        ) -> c_int {
            // SAFETY: `each_pair` passes a pointer to its closure, which outlives the walk.
            let visit = unsafe { &mut *(visit as *mut F) };
            visit(key, value);
            // On to the next pair.
            0
        }
        let argument = (&raw mut visit) as VALUE;
        // SAFETY: `hash` is a Hash, and the callback fits the argument.
        unsafe { rb_sys::rb_hash_foreach(hash, Some(pair::<F>), argument) };
    }

    /// Runs `action`; what it raises is caught.
    pub(super) fn protect<T: Copy>(self, action: impl FnOnce(Protected) -> T) -> Result<T, Raised> {
        struct Call<F, T> {
            action: Option<F>,
            answer: Option<T>,
        }
        unsafe extern "C" fn enter<F: FnOnce(Protected) -> T, T>(call: VALUE) -> VALUE {
            // SAFETY: `protect` passes a pointer to its own `Call`, which outlives this call.
            let call = unsafe { &mut *(call as *mut Call<F, T>) };
            if let Some(action) = call.action.take() {
                // SAFETY: `rb_protect` calls with the lock held.
                let gvl = unsafe { Gvl::assume() };
                call.answer = Some(action(Protected(gvl)));
            }
            NIL
        }
        fn enter_for<F: FnOnce(Protected) -> T, T>(
            _: &Call<F, T>,
        ) -> unsafe extern "C" fn(VALUE) -> VALUE {
            enter::<F, T>
        }
        let mut call = Call { action: Some(action), answer: None };
        let mut state = 0;
        let entry = enter_for(&call);
        // SAFETY: the callback fits the argument, and the state outlives the call.
        unsafe { rb_sys::rb_protect(Some(entry), (&raw mut call) as VALUE, &raw mut state) };
        call.answer.ok_or_else(|| self.take_error(state))
    }

    /// What was raised. Ruby's own business stays where Ruby put it, to be resumed.
    fn take_error(self, state: c_int) -> Raised {
        // SAFETY: the lock is held.
        let error = unsafe { rb_sys::rb_errinfo() };
        let raised = Raised { state, error };
        if raised.is_exception(self) {
            // SAFETY: nil is a valid error info.
            unsafe { rb_sys::rb_set_errinfo(NIL) };
        }
        raised
    }

    /// Lets other Ruby threads run while `wait` blocks. `wait` touches nothing of Ruby's; `unblock`
    /// ends it early, from whatever thread. If something is pending for this thread, `wait` may not run
    /// at all.
    pub(super) fn release<W: FnMut(), U: Fn()>(self, mut wait: W, unblock: U) {
        unsafe extern "C" fn enter<W: FnMut()>(wait: *mut c_void) -> *mut c_void {
            // SAFETY: `release` passes a pointer to its closure, which outlives the call.
            let wait = unsafe { &mut *wait.cast::<W>() };
            wait();
            std::ptr::null_mut()
        }
        unsafe extern "C" fn end<U: Fn()>(unblock: *mut c_void) {
            // SAFETY: as above; Ruby calls it only while the wait lasts.
            let unblock = unsafe { &*unblock.cast::<U>() };
            unblock();
        }
        let (wait, unblock) = ((&raw mut wait).cast(), (&raw const unblock).cast_mut().cast());
        // SAFETY: the callbacks fit their arguments, and this variant never raises.
        unsafe {
            rb_sys::rb_thread_call_without_gvl2(Some(enter::<W>), wait, Some(end::<U>), unblock)
        };
    }

    /// Lets the next thread run that waits for the gvl, if one does.
    pub(super) fn yield_turn(self) {
        // SAFETY: the lock is held by a Ruby thread. It checks no interrupts.
        unsafe { rb_sys::rb_thread_schedule() };
    }
}

impl Raised {
    /// Whether it is an exception that can be rescued.
    pub(super) fn is_exception(self, gvl: Gvl) -> bool {
        gvl.is(self.error, ruby_value_type::RUBY_T_OBJECT)
            || gvl.is(self.error, ruby_value_type::RUBY_T_DATA)
    }

    /// Raises it again.
    ///
    /// # Safety
    /// Nothing with a destructor lives in the caller, nor in any of its callers up to Ruby.
    pub(super) unsafe fn resume(self, gvl: Gvl) -> ! {
        if self.is_exception(gvl) {
            // SAFETY: `error` is an exception that Ruby raised.
            unsafe { rb_sys::rb_set_errinfo(self.error) };
        }
        // SAFETY: the state is the one that `rb_protect` gave.
        unsafe { rb_sys::rb_jump_tag(self.state) }
    }
}

impl Protected {
    pub(super) fn gvl(self) -> Gvl {
        self.0
    }

    pub(super) fn call(self, receiver: VALUE, method: ID, arguments: &[VALUE]) -> VALUE {
        let count = c_int::try_from(arguments.len()).unwrap_or(0);
        // SAFETY: live values; what it raises is caught.
        unsafe { rb_sys::rb_funcallv(receiver, method, count, arguments.as_ptr()) }
    }

    /// A File to read and to write, of a descriptor that it closes.
    pub(super) fn file(self, descriptor: VALUE) -> VALUE {
        // SAFETY: Ruby sets the global once, before any extension is loaded.
        let class = unsafe { rb_sys::rb_cFile };
        self.call(class, method(c"for_fd"), &[descriptor, self.0.string(b"r+b")])
    }

    /// Calls a method with a block, which is called with what it yields.
    pub(super) fn call_with_block<F: FnMut(Protected, VALUE)>(
        self,
        receiver: VALUE,
        method: ID,
        mut block: F,
    ) {
        unsafe extern "C" fn yielded<F: FnMut(Protected, VALUE)>(
            value: VALUE,
            block: VALUE,
            _count: c_int,
            _values: *const VALUE,
            _its_block: VALUE,
        ) -> VALUE {
            // SAFETY: `call_with_block` passes a pointer to its closure, which outlives the call.
            let block = unsafe { &mut *(block as *mut F) };
            // SAFETY: Ruby calls its blocks with the lock held.
            let gvl = unsafe { Gvl::assume() };
            block(Protected(gvl), value);
            NIL
        }
        let argument = (&raw mut block) as VALUE;
        // SAFETY: the callback fits the argument; what it raises is caught.
        unsafe {
            rb_sys::rb_block_call(
                receiver,
                method,
                0,
                std::ptr::null(),
                Some(yielded::<F>),
                argument,
            )
        };
    }

    /// Leaves the block that is running, and the method that called it.
    pub(super) fn leave_block(self) -> ! {
        // SAFETY: called from a block's callback, across frames without destructors.
        unsafe { rb_sys::rb_iter_break() }
    }

    /// `value` as an Array, by its `to_ary`; nil if it has none.
    pub(super) fn to_array(self, value: VALUE) -> VALUE {
        // SAFETY: a live value; what it raises is caught.
        unsafe { rb_sys::rb_check_array_type(value) }
    }

    /// `value` as a String, by its `to_s`.
    pub(super) fn to_string(self, value: VALUE) -> VALUE {
        // SAFETY: a live value; what it raises is caught.
        unsafe { rb_sys::rb_obj_as_string(value) }
    }

    /// `value` as a number, as Ruby converts arguments.
    pub(super) fn to_number(self, value: VALUE) -> i64 {
        // SAFETY: a live value; what it raises is caught.
        unsafe { rb_sys::rb_num2long(value) }
    }

    /// `value` as a number without a sign.
    pub(super) fn to_unsigned(self, value: VALUE) -> u64 {
        // SAFETY: a live value; what it raises is caught.
        unsafe { rb_sys::rb_num2ull(value) }
    }

    /// An option by its name; nil if it is not given.
    pub(super) fn option(self, options: VALUE, name: &CStr) -> VALUE {
        let key = rb_sys::ID2SYM(method(name));
        // SAFETY: a live value; what it raises is caught.
        unsafe { rb_sys::rb_hash_aref(options, key) }
    }

    /// Raises a RuntimeError with a String.
    pub(super) fn runtime_error(self, message: VALUE) -> ! {
        // SAFETY: Ruby sets the global once, before any extension is loaded.
        let class = unsafe { rb_sys::rb_eRuntimeError };
        // SAFETY: a class of exceptions and a String.
        let error = unsafe { rb_sys::rb_exc_new_str(class, message) };
        // SAFETY: an exception; what is raised is caught.
        unsafe { rb_sys::rb_exc_raise(error) }
    }

    /// Raises an IOError with a String.
    pub(super) fn io_error(self, message: VALUE) -> ! {
        // SAFETY: Ruby sets the global once, before any extension is loaded.
        let class = unsafe { rb_sys::rb_eIOError };
        // SAFETY: a class of exceptions and a String.
        let error = unsafe { rb_sys::rb_exc_new_str(class, message) };
        // SAFETY: an exception; what is raised is caught.
        unsafe { rb_sys::rb_exc_raise(error) }
    }

    /// Raises a TypeError.
    pub(super) fn type_error(self, message: &str) -> ! {
        // SAFETY: Ruby sets the global once, before any extension is loaded.
        let class = unsafe { rb_sys::rb_eTypeError };
        self.error(class, message)
    }

    /// Raises an ArgumentError.
    pub(super) fn argument_error(self, message: &str) -> ! {
        // SAFETY: Ruby sets the global once, before any extension is loaded.
        let class = unsafe { rb_sys::rb_eArgError };
        self.error(class, message)
    }

    fn error(self, class: VALUE, message: &str) -> ! {
        let length = length(message.as_bytes());
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        let error = unsafe { rb_sys::rb_exc_new(class, message.as_ptr().cast(), length) };
        // SAFETY: an exception; what is raised is caught.
        unsafe { rb_sys::rb_exc_raise(error) }
    }

    /// Lets signals, `Thread#raise` and `Thread#kill` take effect.
    pub(super) fn check_interrupts(self) {
        // SAFETY: what it raises is caught.
        unsafe { rb_sys::rb_thread_check_ints() };
    }
}

/// The identifier of a method's name.
pub(super) fn method(name: &CStr) -> ID {
    let length = length(name.to_bytes());
    // SAFETY: the pointer is valid for the length.
    unsafe { rb_sys::rb_intern2(name.as_ptr(), length) }
}

/// Ruby's `true` or `false`.
pub(super) fn truth(value: bool) -> VALUE {
    if value { Qtrue as VALUE } else { Qfalse as VALUE }
}

/// Where the bytes start. Ruby looks at the first word even of an empty String, so there must be one.
fn pointer(bytes: &[u8]) -> *const c_char {
    static NOTHING: u64 = 0;
    if bytes.is_empty() { (&raw const NOTHING).cast() } else { bytes.as_ptr().cast() }
}

fn length(bytes: &[u8]) -> c_long {
    // No slice is longer.
    c_long::try_from(bytes.len()).unwrap_or(c_long::MAX)
}
