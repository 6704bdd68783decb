//! Compiles the programs that the kernel runs, if the feature `ebpf` asks for them.

use std::path::Path;
use std::process::Command;

const SOURCE: &str = "src/ebpf/programs.c";

fn main() {
    println!("cargo::rerun-if-changed=src/ebpf");
    if std::env::var_os("CARGO_FEATURE_EBPF").is_none() {
        return;
    }
    let variable = |name| std::env::var(name).unwrap_or_default();
    let object = Path::new(&variable("OUT_DIR")).join("programs.o");
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
    if variable("CARGO_CFG_TARGET_ARCH") == "x86_64" {
        clang.arg("-DX86");
    }
    let status = clang.args(["-c", SOURCE, "-o"]).arg(object).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => println!("cargo::error=clang could not compile {SOURCE} ({status})"),
        Err(error) => println!(
            "cargo::error=the feature ebpf needs clang, of the package clang: cannot start it: {error}"
        ),
    }
}
