# Everything a developer runs. `make test` is what CI runs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: test lint unit integration demo bench mutants stack-up stack-down clean-stack

STACK := tests/stack/stack.sh

# In the order that fails fastest.
test: lint unit integration

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# What needs no server.
unit:
	cargo test --workspace --lib --bins
	cargo test --workspace --doc

# On real servers: brought up once, taken down whatever happens. Built first, so that no server waits for the compiler.
# T=name runs the tests whose names hold it.
integration:
	cargo test --workspace --test '*' --no-run
	$(STACK) run -- cargo test --workspace --test '*' -- $(T)

# Loads, drifts, repairs and compares; ends with a table.
demo:
	cargo build --release --workspace --bins
	deploy/demo/demo.sh

# One markdown report, each figure beside its peer or limit. BENCH=statements runs one part, BENCH="all --scale 0.1" all
# of them smaller, BENCH="stream --help" tells what a part can be asked.
BENCH ?= all
bench:
	cargo build --release --workspace --bins
	SINK_REPAIR_STACK_BENCH=yes SINK_REPAIR_STACK_CONNECT_HEAP=2g $(STACK) run -- target/release/bench $(BENCH)

# Each safety rule taken out, and the test that notices.
mutants:
	tests/mutants/run.sh

# For work by hand: eval "$$(tests/stack/stack.sh env)", then cargo test --test NAME.
stack-up:
	$(STACK) up

stack-down:
	$(STACK) down

# Also what was fetched.
clean-stack: stack-down
	rm -rf .stack
