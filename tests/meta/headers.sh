#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C11 and as C++11.
#   headers.sh SOURCE_DIR CC
set -euo pipefail
include=$1/include cc=$2 status=0
flags=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$include")
cxx=$(command -v c++ || true)
[ -n "$cxx" ] || echo "no C++ compiler here: the headers are tried as C only"

for header in "$include"/antigravity/*.h; do
    line="#include <antigravity/${header##*/}>"$'\nextern int declared;' # one header has macros alone
    "$cc" -x c -std=c11 "${flags[@]}" - <<<"$line" || status=1
    [ -z "$cxx" ] || "$cxx" -x c++ -std=c++11 "${flags[@]}" - <<<"$line" || status=1
done
exit $status
