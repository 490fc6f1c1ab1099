#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh machine to a story: installs what is missing, builds, and lets the bundled model tell one.
#   scripts/demo.sh [OPTIONS OF antigravity generate]      scripts/demo.sh -p "The old king had three sons" -n 300
start=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/setup.sh
say "Building (build/release)"
build_preset release antigravity_program
source_dir=$PWD
program=$source_dir/build/release/bin/antigravity

cd "$start" || exit # File names among the options are the caller's.
prompt=(--echo -p "Once upon a time")
for option in "$@"; do
    case "$option" in
    -p* | --prompt* | -f | --file) prompt=() ;;
    esac
done
status=0
"$program" generate ${prompt[@]+"${prompt[@]}"} "$@" || status=$?
say "
The program is $program
'make install' in $source_dir installs it (PREFIX=$HOME/.local for you alone); '--help' tells what it can do."
exit $status
