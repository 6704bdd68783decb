# Two commands: `make serve` and `make test`. Each sets up what is missing first and says what it installs.
.PHONY: serve test build setup fmt bench clean

APP ?= examples/rails_app
CARGO := scripts/cargo

serve:
	scripts/setup serve
	$(MAKE) build
	target/release/thruway serve $(APP)

test: setup
	$(CARGO) x check

build:
	$(CARGO) build --release --workspace
	$(CARGO) x gem --release

setup:
	scripts/setup

fmt:
	$(CARGO) fmt --all

bench: build
	$(CARGO) x bench

clean:
	$(CARGO) clean
