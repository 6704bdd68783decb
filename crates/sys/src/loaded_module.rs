//! The DLL or program that contains an address of this process.

use std::ffi::OsString;
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;

use windows_sys::Win32::Foundation::HMODULE;
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
    GetModuleFileNameW, GetModuleHandleExW,
};

/// The longest path that Windows knows, in UTF-16 units.
const PATH_UNITS_MAX: usize = 32_768;

/// Returns the path of the file from which the code or data at `address` was loaded.
///
/// # Errors
/// The address belongs to no loaded file.
pub fn file_of(address: *const ()) -> io::Result<PathBuf> {
    let module = module_of(address)?;
    let mut path = vec![0; PATH_UNITS_MAX];
    // SAFETY: the module is loaded, and the buffer has the stated length.
    let length =
        unsafe { GetModuleFileNameW(module, path.as_mut_ptr(), PATH_UNITS_MAX as u32) } as usize;
    if length == 0 || length == PATH_UNITS_MAX {
        return Err(io::Error::last_os_error());
    }
    Ok(OsString::from_wide(&path[..length]).into())
}

/// Returns the address at which the file that contains `address` begins in memory.
pub(crate) fn base_of(address: *const ()) -> io::Result<usize> {
    module_of(address).map(|module| module as usize)
}

fn module_of(address: *const ()) -> io::Result<HMODULE> {
    let mut module = ptr::null_mut();
    let flags =
        GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    // SAFETY: with this flag, the name is any address, and there is room for the result.
    let is_found = unsafe { GetModuleHandleExW(flags, address.cast(), &raw mut module) };
    if is_found == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_its_file() {
        let own = std::env::current_exe().unwrap();
        let file = file_of(a_function_belongs_to_its_file as *const ()).unwrap();
        assert_eq!(file.file_name(), own.file_name());
        assert!(file_of(ptr::null::<()>().wrapping_byte_add(1)).is_err());
    }
}
