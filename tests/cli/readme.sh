#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs each fenced sh block of README.md that has no line <!-- not run: REASON --> before it. Each must end with status 0.
#   readme.sh SOURCE_DIR PROGRAM
set -euo pipefail
page=$(cd "$1" && pwd)/README.md
work=$(mktemp -d)
mkdir "$work/bin"
# PROGRAM may have another name: under an emulator it is a script that starts the emulator.
ln -s "$(realpath "$2")" "$work/bin/antigravity"
PATH=$work/bin:$PATH
trap 'rm -rf "$work"' EXIT
export HOME=$work ANTIGRAVITY_MODELS=$work/models
export -n XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME
cd "$work"

# Writes block I that is to be run into I.sh.
awk '
    /^```sh$/ && !skip { file = ++n ".sh"; next }
    /^```/ { if (file) close(file); file = ""; skip = 0; next }
    file { print > file; next }
    /^<!-- not run: .+ -->$/ { skip = 1; next }
    { skip = 0 }' "$page"

status=0 n_blocks=0
while [ -f $((n_blocks + 1)).sh ]; do
    n_blocks=$((n_blocks + 1))
    if ! bash -e $n_blocks.sh >$n_blocks.out 2>&1 </dev/null; then
        echo "README.md: this block failed:"
        cat $n_blocks.sh
        echo "its output:"
        cat $n_blocks.out
        status=1
    fi
done
[ $n_blocks -gt 0 ] || { echo "README.md: no block was run: this test is broken"; exit 1; }
exit $status
