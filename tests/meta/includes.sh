#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks #include lines. Only src/platform and a few listed files of src include system headers. Headers that include each
# other in a circle are listed here with a reason. A circle is a set of stems: x.c, x.h and x_impl.h are one stem.
#   includes.sh SOURCE_DIR
set -euo pipefail
cd "$1"
status=0

# ---- system headers ----

# Headers of ISO C, of the compiler and of libraries.
portable='assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|stdalign|stdarg|stdatomic|stdbool|'
portable+='stddef|stdint|stdio|stdlib|stdnoreturn|string|tgmath|threads|time|uchar|wchar|wctype|'
portable+='immintrin|arm_neon|sanitizer/asan_interface|jansson|pcre2|utf8proc|antigravity/[a-z_]+|CL/[a-z_]+'
# Files outside src/platform that may include others.
allowed='src/backend/cpu/features\.c:' # instruction sets of the processor
allowed+='|src/backend/opencl/cl_api\.c:#include <dlfcn\.h>' # the OpenCL library is opened at run time

system=$(grep -roE --include='*.[ch]' '^ *# *include <[^>]+>' src | grep -v '^src/platform/' |
    grep -vE "<($portable)\.h>" | grep -vE "^($allowed)" || true)
clocks=$(grep -rlw --include='*.[ch]' 'clock_gettime' src | grep -v '^src/platform/' || true)
if [ -n "$system$clocks" ]; then
    echo "system headers or clocks outside src/platform:"
    printf '%s\n' "$system" "$clocks" | sort | grep .
    status=1
fi

# ---- circles ----

# Each line: the stems of a circle, "|", why it may stay.
known=$(
    cat <<'END'
END
)

# edges: "stem stem" for each #include of a file of ours.
edges() {
    find src programs -name '*.[ch]' | sort | xargs grep -oE '^ *# *include "[^"]+"' /dev/null |
        sed -E 's/: *# *include "/ /; s/"$//' |
        awk '
            function stem(f) { sub(/\.[ch]$/, "", f); sub(/_impl$/, "", f); return f }
            function exists(f) { if (!(f in seen)) seen[f] = (getline unused < f) >= 0; close(f); return seen[f] }
            function clean(f) { while (sub(/[^\/]+\/\.\.\//, "", f)) {} return f }
            {
                dir = $1; sub(/[^\/]*$/, "", dir)
                n = split(clean(dir $2) " src/" $2 " programs/measure/" $2, places, " ")
                for (i = 1; i <= n && !exists(places[i]);) i++
                if (i <= n && stem($1) != stem(places[i])) print stem($1), stem(places[i])
            }' | sort -u
}

# circles: one line for each strongly connected set, its stems in order.
circles() {
    awk '
        { from[NR] = $1; to[NR] = $2; live[NR] = 1 }
        function visit(start, set,   i, n, queue, head) {
            queue[n = 1] = start
            for (head = 1; head <= n; head++)
                for (i = 1; i <= NR; i++)
                    if (live[i] && from[i] == queue[head] && !((start, to[i]) in set)) {
                        set[start, to[i]] = 1
                        queue[++n] = to[i]
                    }
        }
        END {
            # An edge that starts or ends where no other one continues is part of no circle.
            do {
                split("", out); split("", in_)
                for (i = 1; i <= NR; i++) if (live[i]) { out[from[i]] = 1; in_[to[i]] = 1 }
                changed = 0
                for (i = 1; i <= NR; i++)
                    if (live[i] && (!(from[i] in in_) || !(to[i] in out))) { live[i] = 0; changed = 1 }
            } while (changed)
            for (i = 1; i <= NR; i++) if (live[i]) stems[from[i]] = 1
            for (s in stems) visit(s, reach)
            for (s in stems) {
                if (!((s, s) in reach)) continue
                for (t in stems) if ((s, t) in reach && (t, s) in reach) print s, t
            }
        }' | sort | awk '
        $1 != last { if (line != "") print line; line = ""; last = $1 }
        { line = line (line == "" ? "" : " ") $2 }
        END { if (line != "") print line }' | sort -u
}

found=$(edges | circles)
while IFS= read -r circle; do
    [ -n "$circle" ] || continue
    if ! grep -qF "$circle|" <<<"$known"; then
        echo "headers that include each other: $circle"
        status=1
    fi
done <<<"$found"
while IFS='|' read -r circle reason; do
    [ -n "$circle" ] || continue
    [ -n "$reason" ] || { echo "no reason for the circle $circle"; status=1; }
    grep -qxF "$circle" <<<"$found" || { echo "listed, but no circle any more: $circle"; status=1; }
done <<<"$known"
if [ "$(grep -c . <<<"$known")" -gt 4 ]; then
    echo "more than 4 circles are listed"
    status=1
fi
exit $status
