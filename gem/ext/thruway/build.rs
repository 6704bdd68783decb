//! Tells the linker where the functions are that the library calls and Ruby defines.
//!
//! On most systems they are found when the library is loaded. On macOS, the linker has to be told that the program
//! which loads the library defines them. On Windows, it needs the import library of Ruby's DLL.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    match variable("CARGO_CFG_TARGET_OS").as_str() {
        "macos" => println!("cargo::rustc-link-arg-cdylib=-Wl,-undefined,dynamic_lookup"),
        "windows" => {
            // Told by rb-sys, which asks Ruby.
            println!("cargo::rustc-link-arg-cdylib=-L{}", variable("DEP_RB_LIBDIR"));
            println!("cargo::rustc-link-arg-cdylib=-l{}", variable("DEP_RB_RBCONFIG_RUBY_SO_NAME"));
        }
        _ => {}
    }
}
