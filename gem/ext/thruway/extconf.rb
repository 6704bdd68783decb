# frozen_string_literal: true

# `gem install` runs this file, and then the Makefile that it writes. In a checkout, `make build`
# does the same work.

require "rbconfig"

unless system("cargo", "--version", out: File::NULL, err: File::NULL)
  abort "thruway: cargo is not installed\n\nhint: the extension needs Rust 1.95 and libclang; " \
        "https://rustup.rs has the first, Debian's libclang-dev is the second"
end

# One call of cargo builds the command and the extension, so shared crates are compiled once.
# `thruway run` may start Rubies of all versions, and looks for the extension in a folder that is
# named after the version.
# Cargo's intermediate files take a hundred times the space of the installed files.
version = RUBY_VERSION[/\A\d+\.\d+/]
name = "thruway.#{RbConfig::CONFIG.fetch("DLEXT")}"
File.write("Makefile", <<~MAKEFILE)
  export RUBY = #{RbConfig.ruby}
  export CARGO_TARGET_DIR = $(CURDIR)/target
  export CARGO_PROFILE_RELEASE_STRIP = symbols
  export CARGO_PROFILE_RELEASE_DEBUG = false
  sitearchdir = #{RbConfig::CONFIG.fetch("sitearchdir")}
  BUILT = $(CARGO_TARGET_DIR)/release
  INSTALLED = $(DESTDIR)$(sitearchdir)/thruway

  .PHONY: all install clean

  all:
  \tcargo build --locked --release --manifest-path "#{File.expand_path("../../..", __dir__)}/Cargo.toml" \\
  \t  --package thruway-cli --package thruway-gem-ext

  install: all
  \tmkdir -p $(INSTALLED)/bin $(INSTALLED)/#{version}
  \tinstall -m 755 $(BUILT)/libthruway_ext.#{RbConfig::CONFIG.fetch("SOEXT")} $(INSTALLED)/#{name}
  \tinstall -m 755 $(BUILT)/thruway $(INSTALLED)/bin/thruway
  \tln -sf ../#{name} $(INSTALLED)/#{version}/#{name}
  \trm -rf $(CARGO_TARGET_DIR)

  clean:
  \trm -rf $(CARGO_TARGET_DIR)
MAKEFILE
