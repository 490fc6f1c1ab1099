#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every global symbol of the archive begins with ag_; the shared library exports what the headers declare AG_API.
#   symbols.sh SOURCE_DIR NM ARCHIVE SHARED_LIBRARY
set -euo pipefail
source_dir=$1 nm=$2 archive=$3 shared=$4
status=0

# complain WHAT NAMES: an error unless NAMES is empty.
complain() {
    [ -n "$2" ] || return 0
    printf '%s:\n%s\n' "$1" "$2"
    status=1
}

# symbols NM-OPTION... FILE
symbols() { "$nm" --extern-only --defined-only "$@" | awk 'NF == 3 { print $3 }' | sort -u; }

defined=$(symbols "$archive")
exported=$(symbols --dynamic "$shared")
declared=$(cat "$source_dir"/include/antigravity/*.h | tr '\n' ' ' | grep -oE 'AG_API [^;(]*\(' |
    grep -oE 'ag_[a-z0-9_]+ *\($' | tr -d ' (' | sort -u)
if [ -z "$defined" ] || [ -z "$exported" ] || [ -z "$declared" ]; then
    echo "no symbols found: the test is broken"
    exit 1
fi

complain "$archive: global, but without the prefix ag_" "$(grep -v '^ag_' <<<"$defined" || true)"
complain "declared AG_API, not exported" "$(comm -23 <(echo "$declared") <(echo "$exported"))"
complain "exported, not declared AG_API" "$(comm -13 <(echo "$declared") <(echo "$exported"))"
exit $status
