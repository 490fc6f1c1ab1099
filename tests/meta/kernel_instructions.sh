#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The inner loops of products have at most the instructions that were counted when their speed was measured
# (docs/measured/cpu.md). Other compilers give other counts: only the one they were counted with is compared.
#   kernel_instructions.sh SOURCE_DIR OBJDUMP OBJECT...
set -euo pipefail
source_dir=$1
export OBJDUMP=$2
shift 2

# Each line: function, products, and the most vector operations, loads and stores.
bounds=$(
    cat <<'END'
ag_matmul_iq4_nl_x16__avx2 64 272 77 7
ag_matmul_q2_k_x16__avx2 64 210 95 13
ag_matmul_q3_k_x16__avx2 64 192 80 13
ag_matmul_q4_0_x16__avx2 64 160 63 5
ag_matmul_q4_1_x16__avx2 64 160 65 5
ag_matmul_q4_k_x16__avx2 64 160 65 5
ag_matmul_q5_0_x16__avx2 64 168 68 12
ag_matmul_q5_1_x16__avx2 64 168 74 12
ag_matmul_q5_k_x16__avx2 64 168 74 12
ag_matmul_q6_k_x16__avx2 64 208 90 22
ag_matmul_q8_0_x16__avx2 64 272 77 7
ag_matmul_iq4_nl_x16__avxvnni 64 88 59 5
ag_matmul_q2_k_x16__avxvnni 64 147 97 12
ag_matmul_q3_k_x16__avxvnni 64 112 78 11
ag_matmul_q4_0_x16__avxvnni 64 88 62 4
ag_matmul_q4_1_x16__avxvnni 64 96 65 5
ag_matmul_q4_k_x16__avxvnni 64 96 65 5
ag_matmul_q5_0_x16__avxvnni 64 88 59 5
ag_matmul_q5_1_x16__avxvnni 64 96 65 5
ag_matmul_q5_k_x16__avxvnni 64 96 65 5
ag_matmul_q6_k_x16__avxvnni 64 112 77 12
ag_matmul_q8_0_x16__avxvnni 64 88 57 3
ag_matmul_iq4_nl_x16__avx512 96 132 72 0
ag_matmul_q2_k_x16__avx512 64 144 85 0
ag_matmul_q3_k_x16__avx512 64 112 59 0
ag_matmul_q4_0_x16__avx512 96 132 78 0
ag_matmul_q4_1_x16__avx512 96 144 80 0
ag_matmul_q4_k_x16__avx512 96 144 80 0
ag_matmul_q5_0_x16__avx512 96 132 72 0
ag_matmul_q5_1_x16__avx512 96 144 80 0
ag_matmul_q5_k_x16__avx512 96 144 80 0
ag_matmul_q6_k_x16__avx512 64 112 58 0
ag_matmul_q8_0_x16__avx512 96 132 72 0
END
)

counts=$("$source_dir/tools/kernel_instructions.sh" "$@")
awk '
    NR == FNR { products[$1] = $2; most[$1] = $3 " " $4 " " $5; left++; next }
    {
        split(most[$1], m, " ")
        if (!($1 in most)) print $1 ": no counts are recorded"
        else if ($2 != products[$1] || $4 > m[1] || $5 > m[2] || $6 > m[3])
            printf "%s: %d products, %d operations, %d loads, %d stores; recorded: %d %s\n", $1, $2, $4, $5, $6,
                products[$1], most[$1]
        else left--
    }
    END { exit left != 0 }' <(echo "$bounds") <(echo "$counts")
