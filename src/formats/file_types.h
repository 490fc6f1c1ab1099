/* SPDX-License-Identifier: Apache-2.0 */
/* File types: names for the mixture of weight types in a GGUF file, as llama.cpp's tools give
 * them. */
#ifndef AG_FORMATS_FILE_TYPES_H
#define AG_FORMATS_FILE_TYPES_H

#include <antigravity/dtype.h>
#include <stdint.h>

/* Values of general.file_type, as numbered in ggml's gguf.md. */
typedef enum ag_file_type_number {
    AG_FILE_F32 = 0,
    AG_FILE_F16 = 1,
    AG_FILE_Q4_0 = 2,
    AG_FILE_Q4_1 = 3,
    AG_FILE_Q8_0 = 7,
    AG_FILE_Q5_0 = 8,
    AG_FILE_Q5_1 = 9,
    AG_FILE_Q2_K = 10,
    AG_FILE_Q3_K_S = 11,
    AG_FILE_Q3_K_M = 12,
    AG_FILE_Q3_K_L = 13,
    AG_FILE_Q4_K_S = 14,
    AG_FILE_Q4_K_M = 15,
    AG_FILE_Q5_K_S = 16,
    AG_FILE_Q5_K_M = 17,
    AG_FILE_Q6_K = 18,
    AG_FILE_Q2_K_S = 21,
    AG_FILE_IQ4_NL = 25,
    AG_FILE_BF16 = 32,
    AG_FILE_MXFP4_MOE = 38,
} ag_file_type_number;

typedef struct ag_file_type {
    const char *name, *alias; /* "q4_k_m", "q4_k"; alias NULL: none */
    ag_dtype type;            /* type of most matrices */
    ag_file_type_number number;
} ag_file_type;

/* Returns the i-th type; NULL past the end. */
const ag_file_type *ag_file_type_at(size_t i);
/* Find a type; NULL if unknown. Case does not matter. */
const ag_file_type *ag_file_type_named(const char *name);
const ag_file_type *ag_file_type_numbered(int64_t number);

#endif
