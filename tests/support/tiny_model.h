/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a two-layer Llama model into a directory of its own under the system's temporary one,
 * whole or with one thing wrong. */
#ifndef AG_TESTS_SUPPORT_TINY_MODEL_H
#define AG_TESTS_SUPPORT_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tiny_model {
    const char *dtype;     /* "F32" (default), "F16", "BF16", or any other spelling */
    const char *leave_out; /* tensor that is not written */
    const char *reshape;   /* tensor that gets one row too many */
    const char *poison;    /* tensor whose 6th value is `poison_value` */
    float poison_value;
    bool only_head;           /* the table is called lm_head.weight alone */
    bool with_head;           /* both names, with different values */
    bool tied;                /* config.json says so */
    bool unaligned;           /* data begins at an odd byte */
    const char *config_extra; /* ", \"key\": value" into config.json */
    const char *extra_tensor; /* one more tensor, of 4 values */
    bool with_tokenizer;      /* byte-level BPE with 300 entries, the vocabulary's size */
} tiny_model;

enum { TINY_VOCAB = 300, TINY_DIM = 64, TINY_FFN = 96, TINY_LAYERS = 2 };

/* dir[0..cap) receives the path. False, with a message on stderr, if it cannot be written. */
bool tiny_model_write(const tiny_model *m, char *dir, size_t cap);
/* Removes the directory and its files. */
void tiny_model_remove(const char *dir);

#endif
