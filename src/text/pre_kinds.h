/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers by the name in "tokenizer.ggml.pre" of a GGUF file: how text is split before
 * byte-level BPE. The file has only the name; the patterns are those of the models'
 * tokenizer.json. */
#ifndef AG_TEXT_PRE_KINDS_H
#define AG_TEXT_PRE_KINDS_H

#include <stddef.h>

enum {
    AG_PRE_IGNORE_MERGES = 1, /* a piece that is a token as a whole is not merged */
    AG_PRE_ADD_BOS = 2,       /* default if the file does not say */
    AG_PRE_NFC = 4,           /* text is normalised to NFC first */
};

typedef struct ag_pre_kind {
    const char *name;
    unsigned flags;
    const char *const *patterns; /* each splits the pieces of the previous one; ends with NULL */
} ag_pre_kind;

/* Returns NULL for an unknown name. "" is for files without the key. */
const ag_pre_kind *ag_pre_find(const char *name, size_t n);
/* Returns the first name with exactly these patterns and the same IGNORE_MERGES and NFC flags, NULL
 * if there is none. patterns must end with NULL. */
const char *ag_pre_name(const char *const *patterns, unsigned flags);

#endif
