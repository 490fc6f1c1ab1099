#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts instructions of the x86 products of quantised weights, in the shortest of their loops with the most products. One
# iteration multiplies a block of 16 rows and 32 columns with the rows of activations whose sums stay in registers.
#   tools/kernel_instructions.sh FILE...
# FILE is an object file, an archive or a program with symbols. A line for each function: its name, products of bytes, all
# instructions, vector operations (no loads, stores, moves and broadcasts), vector loads, vector stores, and vector
# instructions that access the stack. OBJDUMP names the program that disassembles.
set -euo pipefail
[ $# -ge 1 ] || {
    sed -n '3,8s/^# //p' "$0"
    exit 2
}
"${OBJDUMP:-objdump}" -d --no-show-raw-insn "$@" | awk '
    function hex(text,   i, value) {
        for (i = 1; i <= length(text); i++) value = value * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
        return value
    }
    # Counts the instructions first to last, an inner loop.
    function count(first, last,   i, c) {
        split("", c)
        for (i = first; i <= last; i++) {
            if (op[i] !~ /^v/) continue
            if (op[i] ~ /^vp(maddubsw|dpbusd)/) c["products"]++
            if (op[i] !~ /^v(p?broadcast|mov)/) c["operations"]++
            if (args[i] ~ /\([^()]*\)$/) c["stores"]++
            else if (args[i] ~ /\(/) c["loads"]++
            if (args[i] ~ /%r[sb]p/) c["stack"]++
        }
        c["all"] = last - first + 1
        if (c["products"] < most || !c["products"] || (c["products"] == most && c["all"] >= fewest)) return
        most = c["products"]
        fewest = c["all"]
        line = sprintf("%s %d %d %d %d %d %d", name, most, fewest, c["operations"], c["loads"], c["stores"], c["stack"])
    }
    function finish(   i, j, start, inner) {
        most = 0
        start = -1
        # Loops do not cross: a jump back closes an inner loop if no other jump back lies between.
        for (i = 0; i < n; i++) {
            if (op[i] !~ /^j/ || op[i] == "jmp" || !(target[i] in at) || at[target[i]] > i) continue
            j = at[target[i]]
            if (j > start) count(j, i)
            if (j > start) start = j
        }
        if (most) print line
    }
    /^[0-9a-f]+ <.*>:$/ {
        finish()
        name = substr($2, 2, length($2) - 3)
        n = 0
        split("", at)
    }
    name ~ /^ag_matmul_.*_x16__(avx2|avxvnni|avx512)$/ && /^ *[0-9a-f]+:\t/ {
        sub(/[{]vex[}] +/, "")
        address = $1
        sub(/:/, "", address)
        at[hex(address)] = n
        op[n] = $2
        target[n] = hex($3)
        $1 = $2 = ""
        args[n] = $0
        sub(/ +[#<].*/, "", args[n])
        n++
    }
    END { finish() }'
