/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/file_types.h"

#include <stddef.h>

static const ag_file_type types[] = {
    {"q2_k", NULL, AG_Q2_K, AG_FILE_Q2_K},
    {"q2_k_s", NULL, AG_Q2_K, AG_FILE_Q2_K_S},
    {"q3_k_s", NULL, AG_Q3_K, AG_FILE_Q3_K_S},
    {"q3_k_m", "q3_k", AG_Q3_K, AG_FILE_Q3_K_M},
    {"q3_k_l", NULL, AG_Q3_K, AG_FILE_Q3_K_L},
    {"q4_0", NULL, AG_Q4_0, AG_FILE_Q4_0},
    {"q4_1", NULL, AG_Q4_1, AG_FILE_Q4_1},
    {"iq4_nl", NULL, AG_IQ4_NL, AG_FILE_IQ4_NL},
    {"mxfp4_moe", "mxfp4", AG_MXFP4, AG_FILE_MXFP4_MOE},
    {"q4_k_s", NULL, AG_Q4_K, AG_FILE_Q4_K_S},
    {"q4_k_m", "q4_k", AG_Q4_K, AG_FILE_Q4_K_M},
    {"q5_0", NULL, AG_Q5_0, AG_FILE_Q5_0},
    {"q5_1", NULL, AG_Q5_1, AG_FILE_Q5_1},
    {"q5_k_s", NULL, AG_Q5_K, AG_FILE_Q5_K_S},
    {"q5_k_m", "q5_k", AG_Q5_K, AG_FILE_Q5_K_M},
    {"q6_k", NULL, AG_Q6_K, AG_FILE_Q6_K},
    {"q8_0", NULL, AG_Q8_0, AG_FILE_Q8_0},
    {"f16", NULL, AG_F16, AG_FILE_F16},
    {"bf16", NULL, AG_BF16, AG_FILE_BF16},
    {"f32", NULL, AG_F32, AG_FILE_F32},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

const ag_file_type *ag_file_type_at(size_t i) { return i < N_TYPES ? &types[i] : NULL; }

static bool same_name(const char *a, const char *b) {
    if (!a) return false;
    while (*a && (*b == *a || (*b >= 'A' && *b <= 'Z' && *b - 'A' + 'a' == *a))) a++, b++;
    return !*a && !*b;
}

const ag_file_type *ag_file_type_named(const char *name) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (same_name(types[i].name, name) || same_name(types[i].alias, name)) return &types[i];
    return NULL;
}

const ag_file_type *ag_file_type_numbered(int64_t number) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].number == number) return &types[i];
    return NULL;
}
