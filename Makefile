# Everything a developer runs. `make test` is what CI runs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: test lint unit integration faults demo bench mutants stack-up stack-down clean-stack

STACK := tests/stack/stack.sh

# In the order that fails fastest.
test: lint unit integration

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# What needs no server. More tests at a time than cores: most of their time they wait.
unit:
	RUST_TEST_THREADS=8 cargo test --workspace --lib --bins
	cargo test --workspace --doc

# On real servers: brought up once, taken down whatever happens. Built first, so that no server waits for the compiler.
# T=name runs the tests whose names hold it.
integration:
	cargo test --workspace --test '*' --no-run
	RUST_TEST_THREADS=4 $(STACK) run -- cargo test --workspace --test '*' -- $(T)

# Kills, halts and outages in their full numbers; `make test` has them in small.
faults:
	cargo test --test faults --no-run
	SINK_REPAIR_FAULTS_SCALE=full $(STACK) run -- cargo test --test faults -- $(T)

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

# Each safety rule taken out, and the test that notices. T="window fence" takes out only these.
mutants:
	$(STACK) run -- tests/mutants/run.sh $(T)

# For work by hand: eval "$$(tests/stack/stack.sh env)", then cargo test --test NAME.
stack-up:
	$(STACK) up

stack-down:
	$(STACK) down

# Also what was fetched.
clean-stack: stack-down
	rm -rf .stack
