#!/usr/bin/env bash
# Takes each safety rule out of the code, one at a time, and demands that the test named for it fails.
#
# A patch in this folder takes one rule out; the lines before its diff say what it is:
#
#   rule: window                    the rule, as the documentation names it, with a suffix for a part of it
#   out: what the code no longer does
#   run: -p sink-repair --lib       which tests `cargo test` builds
#   test: stream::tests::...        the test that must fail
#
# Prints a Markdown table. Exits 1 when a patch no longer applies, does not compile, or its test still passes.
#
# usage: tests/mutants/run.sh [RULE...]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/target/mutants
# Always the same place, so that only what a patch changes is compiled. Not the project's own target folder: Cargo takes
# crates of one name at the same place below two workspaces for one.
export CARGO_TARGET_DIR=$work/target RUST_BACKTRACE=0 CARGO_TERM_COLOR=never
tree=$work/tree
log=$work/log

rm -rf "$tree"
mkdir -p "$tree"
(cd "$root" && git ls-files -coz --exclude-standard | xargs -0 cp --parents -t "$tree")
cd "$tree"

field() { sed -n "s/^$1: //p" "$2" | head -1; }

# Prints on one line why a test failed, from its log: the message of its panic or its error.
message() {
    awk '/^Error: /{ sub(/^Error: /, ""); printf "%s", $0; exit } ' "$log" | sed 's/|/\\|/g' | cut -c1-160
    awk '/ panicked at /{ on = 1; next } /^note: run with/{ exit } on && NF { sub(/^ +/, ""); printf "%s%s", sep, $0; sep = "; " }' "$log" |
        sed 's/|/\\|/g' | cut -c1-160
}

mutant() {
    local patch=$1 rule out run test
    rule=$(field rule "$patch") out=$(field out "$patch") run=$(field run "$patch") test=$(field test "$patch")
    if ! patch --quiet --strip=1 --no-backup-if-mismatch --fuzz=0 <"$patch" >"$log" 2>&1; then
        echo "| \`$rule\` | $out | \`${test##*::}\` | **the patch does not apply** |"
        return 1
    fi
    local status=0
    # shellcheck disable=SC2086
    cargo test --quiet $run -- --exact "$test" >"$log" 2>&1 || status=$?
    patch --quiet --strip=1 --reverse --fuzz=0 <"$patch"
    if grep -q '^test result: FAILED' "$log"; then
        echo "| \`$rule\` | $out | \`${test##*::}\` | $(message) |"
    elif [ "$status" -eq 0 ]; then
        echo "| \`$rule\` | $out | \`${test##*::}\` | **it still passes** |"
        return 1
    else
        echo "| \`$rule\` | $out | \`${test##*::}\` | **it does not compile**: $(grep -m1 '^error' "$log") |"
        return 1
    fi
}

bad=0
echo "| rule | taken out | the test that fails | its message |"
echo "|---|---|---|---|"
if [ $# -eq 0 ]; then set -- "$here"/*.patch; else set -- "${@/#/$here/}" && set -- "${@/%/.patch}"; fi
for patch in "$@"; do mutant "$patch" || bad=$((bad + 1)); done
echo
echo "$# rules taken out, $(($# - bad)) noticed"
[ "$bad" -eq 0 ]
