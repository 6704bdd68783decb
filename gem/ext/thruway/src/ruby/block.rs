//! Blocks that are passed to methods of other objects.
//!
//! Ruby may keep any block as a Proc, and call it when the method has long returned, in another thread or another
//! fiber. So a block is not a closure, but a Ruby object that owns its data and borrows from no frame. The block is
//! open while the method runs; a later call raises IOError.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::ops::ControlFlow;
use std::sync::OnceLock;

use rb_sys::{ID, VALUE};

use super::data_type::{DataType, Marker, ObjectData};
use super::define;
use super::fiber;
use super::gvl::ProtectedCall;
use super::immediate::NIL;
use super::ractor;
use super::raise;
use super::string::RString;
use super::symbol::Symbol;
use super::value::PinnedObject;

/// A block's function and the data that it owns. Another thread may call the block while an earlier call still waits
/// for something.
pub(crate) trait Block: ObjectData + Sized + 'static {
    /// The one type of the objects that own blocks of this kind.
    fn block_type() -> &'static BlockType<Self>;

    /// Receives the values of one `yield`. A break ends the method that yields. If the caller is outside that
    /// method's frame, a break raises IOError.
    fn call(&self, ruby: ProtectedCall, values: &[VALUE], caller: Caller) -> ControlFlow<()>;
}

/// The place from which a block is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The method that received the block, in its own fiber.
    Method,
    /// Another fiber, or another thread.
    Elsewhere,
}

/// The type of the objects that own blocks of one kind.
pub(crate) struct BlockType<B> {
    data: DataType<LentBlock<B>>,
    class: OnceLock<PinnedObject>,
}

/// A block that was passed to a method.
struct LentBlock<B> {
    block: B,
    /// The fiber that called the method.
    fiber: VALUE,
    /// Whether the method is still running.
    is_open: Cell<bool>,
}

impl<B: Block> ObjectData for LentBlock<B> {
    fn mark(&self, marker: Marker) {
        self.block.mark(marker);
        marker.mark(self.fiber);
    }
}

/// The arguments of a method call with a block.
#[derive(Clone, Copy)]
struct MethodCall {
    receiver: VALUE,
    name: ID,
    /// The object that owns the block.
    block: VALUE,
}

impl<B: Block> BlockType<B> {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { data: DataType::new(name), class: OnceLock::new() }
    }

    fn class(&self, ruby: ProtectedCall) -> PinnedObject {
        let class = || {
            // The server runs in the main Ractor. Ruby lets no other Ractor call methods of this extension.
            ractor::mark_main(ruby.gvl());
            PinnedObject::new(ruby.gvl(), define::anonymous_class(ruby).value())
        };
        *self.class.get_or_init(class)
    }
}

/// Calls `receiver.name` with a block, until the block breaks. Exceptions propagate.
pub(crate) fn call_with_block<B: Block>(
    ruby: ProtectedCall,
    receiver: VALUE,
    name: Symbol,
    block: B,
) {
    let gvl = ruby.gvl();
    let block_type = B::block_type();
    let class = block_type.class(ruby);
    let lent = LentBlock { block, fiber: fiber::current(gvl), is_open: Cell::new(true) };
    let block = block_type.data.wrap(gvl, class, Box::new(lent));
    let call = MethodCall { receiver, name: name.id(), block };
    // SAFETY: `run` gets back the address of `call`, which outlives both functions; `close` gets back the block's
    // object.
    unsafe { rb_sys::rb_ensure(Some(run::<B>), &raw const call as VALUE, Some(close::<B>), block) };
}

unsafe extern "C" fn run<B: Block>(call: VALUE) -> VALUE {
    // SAFETY: `call_with_block` passes the address of its own local, which outlives the call.
    let MethodCall { receiver, name, block } = unsafe { *(call as *const MethodCall) };
    let none = std::ptr::null();
    // SAFETY: the callback fits the argument, which Ruby keeps alive as long as the block; exceptions are caught
    // further up.
    unsafe { rb_sys::rb_block_call(receiver, name, 0, none, Some(yielded::<B>), block) }
}

unsafe extern "C" fn close<B: Block>(block: VALUE) -> VALUE {
    // SAFETY: `rb_ensure` calls the function with the lock held; the block has the right type, so nothing is raised.
    let ruby = unsafe { ProtectedCall::assume() };
    B::block_type().data.get(ruby, &block).is_open.set(false);
    NIL
}

unsafe extern "C" fn yielded<B: Block>(
    _first: VALUE,
    block: VALUE,
    count: c_int,
    values: *const VALUE,
    _its_block: VALUE,
) -> VALUE {
    // SAFETY: Ruby calls blocks with the lock held, and their exceptions are caught by the block's caller.
    let ruby = unsafe { ProtectedCall::assume() };
    if !ractor::is_main(ruby.gvl()) {
        // Ruby lets Ractors share any block of an extension.
        raise_closed(ruby, "the block is for the main Ractor only");
    }
    let lent = B::block_type().data.get(ruby, &block);
    if !lent.is_open.get() {
        raise_closed(ruby, "the block is closed: its method has returned");
    }
    let values = match usize::try_from(count) {
        // SAFETY: Ruby passes `count` values, which live as long as the call of the block.
        Ok(count @ 1..) => unsafe { std::slice::from_raw_parts(values, count) },
        _ => &[],
    };
    let is_inside = lent.fiber == fiber::current(ruby.gvl());
    let caller = if is_inside { Caller::Method } else { Caller::Elsewhere };
    if lent.block.call(ruby, values, caller).is_continue() {
        return NIL;
    }
    // While the block waited, the method's thread may have ended.
    if caller == Caller::Elsewhere || !lent.is_open.get() {
        raise_closed(ruby, "the block takes nothing more");
    }
    // SAFETY: a block's function is running, in the fiber of the method that received the block, and the method has
    // not returned. No value here has a destructor.
    unsafe { rb_sys::rb_iter_break() }
}

fn raise_closed(ruby: ProtectedCall, text: &'static str) -> ! {
    raise::io_error(ruby, RString::binary(ruby.gvl(), text.as_bytes()))
}
