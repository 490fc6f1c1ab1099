/* SPDX-License-Identifier: Apache-2.0 */
/* What the names in "tokenizer.ggml.pre" of a GGUF file mean: how text is cut before byte-level BPE
 * merges it. The file holds only the name; the patterns are those of the models' tokenizer.json. */
#ifndef AG_TEXT_PRE_KINDS_H
#define AG_TEXT_PRE_KINDS_H

#include <stddef.h>

enum {
    AG_PRE_IGNORE_MERGES = 1, /* a piece that is a token as a whole becomes that token */
    AG_PRE_ADD_BOS = 2,       /* unless the file says otherwise */
    AG_PRE_NFC = 4,           /* text is normalised first */
};

typedef struct ag_pre_kind {
    const char *name;
    unsigned flags;
    const char *const *patterns; /* each cuts the pieces that the one before left; ends with NULL */
} ag_pre_kind;

/* NULL for a name that is not known; "" is what files from before there were names mean. */
const ag_pre_kind *ag_pre_find(const char *name, size_t n);
/* The other way round: the first name with these patterns, to the letter, that says the same of
 * merges and of NFC; NULL: none. patterns ends with NULL. */
const char *ag_pre_name(const char *const *patterns, unsigned flags);

#endif
