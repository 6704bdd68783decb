# Two commands: `make serve` and `make test`. Each sets up what is missing first and says what it installs.
.PHONY: help serve test check build setup fmt bench clean

APP ?= examples/rails_app
CARGO := scripts/cargo

# The first target, so that a plain `make` installs nothing.
help:
	@echo 'make serve   sets up, builds, and serves the example (APP=DIR: another application or folder)'
	@echo 'make test    sets up, and runs everything that CI runs'
	@echo 'make check   runs of the same what this machine has the tools for, and installs nothing'
	@echo 'make build   builds the binary and the gem into target/release'
	@echo 'make setup   installs what this machine lacks, and says what before it does'
	@echo 'make fmt     formats the code'
	@echo 'make bench   builds, and measures it beside its peers (an hour)'
	@echo 'make clean   removes what was built'

serve:
	scripts/setup serve
	$(MAKE) build
	target/release/thruway serve "$(APP)"

# A shell ignores some signals in what it starts in the background. Tests send these to what they start.
test: setup
	$(MAKE) --no-print-directory check

check:
	env --default-signal=HUP,INT,QUIT $(CARGO) x check

build:
	$(CARGO) x gem --release

setup:
	scripts/setup

fmt:
	$(CARGO) fmt --all

bench: build
	$(CARGO) x bench

clean:
	$(CARGO) clean
