# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts share; each begins with: source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(nproc)

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$(basename "$0"): $*"
    exit 1
}

# usage: prints the comment at the start of the script.
usage() { sed -n '3,${/^#/!q;s/^# \{0,1\}//p}' "scripts/$(basename "$0")"; }

# need_tools OPTION TOOL...: each tool is installed; scripts/setup.sh OPTION installs those that are not.
need_tools() {
    local tool
    for tool in "${@:2}"; do
        command -v "$tool" >/dev/null || die "$tool is missing; scripts/setup.sh $1 installs it"
    done
}

# quietly NAME COMMAND...: its output goes to build/log/NAME.log and is shown only when it fails; build/log/failed
# names the logs of what did. A function called so does not stop at a failed command by itself: chain its commands with &&.
quietly() {
    local log=build/log/$1.log
    shift
    mkdir -p build/log
    "$@" >"$log" 2>&1 && return
    cat "$log" >&2
    echo "$log" >>build/log/failed
    say "failed: $*"
    return 1
}

# build_preset NAME [TARGET...]: configures and builds into build/NAME; everything, if nothing is named.
build_preset() {
    local targets=()
    [ $# = 1 ] || targets=(--target "${@:2}")
    quietly "configure-$1" cmake --preset "$1" && quietly "build-$1" cmake --build --preset "$1" -j "$jobs" "${targets[@]}"
}
