#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs each fenced sh block of README.md that has no line <!-- not run: REASON --> before it. Each command must end with
# status 0 within two minutes, and write to standard output. Checks that the commands of all blocks are bounded, that
# their scripts exist, and that their models are the bundled one or one that scripts/models.sh fetches.
#   readme.sh SOURCE_DIR PROGRAM
set -euo pipefail
source_dir=$(cd "$1" && pwd)
page=$source_dir/README.md
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
fail() {
    printf 'README.md: %s\n' "$1"
    status=1
}

# Commands of all blocks, also of those that are not run.
awk '/^```(sh|console)$/ { on = 1; next } /^```/ { on = 0 } on { sub(/^\$ /, ""); print }' "$page" >all
bound=' -n [0-9]+|--choice'
while read -r line; do
    if [[ $line == *"antigravity generate"* && ! $line =~ $bound ]]; then
        fail "not bounded by -n or --choice: $line"
    fi
    while read -r script; do
        [ -x "$source_dir/$script" ] || fail "$script does not exist"
    done < <(grep -oE 'scripts/[a-z_]+\.sh' <<<"$line")
    model=$(sed -nE 's/^antigravity .* -m ([^ "]+).*/\1/p' <<<"$line")
    if [ -n "$model" ] && ! grep -q "^$model)" "$source_dir/scripts/models.sh"; then
        fail "-m $model: scripts/models.sh does not fetch it"
    fi
done <all

# Makes a failed or silent command end its block.
cat >bin/checked <<'END'
#!/bin/sh
timeout 120 antigravity "$@" >checked.out || exit
cat checked.out
[ -s checked.out ] || { echo "no output: antigravity $*"; exit 1; }
END
chmod +x bin/checked

while [ -f $((n_blocks + 1)).sh ]; do
    n_blocks=$((n_blocks + 1))
    sed -i 's/^antigravity /checked /' $n_blocks.sh
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
