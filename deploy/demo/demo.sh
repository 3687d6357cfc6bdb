#!/usr/bin/env bash
# The demo on servers of its own: up, run, down, whatever happens.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec tests/stack/stack.sh run -- target/release/demo target/release/sink-repair
