/* SPDX-License-Identifier: Apache-2.0 */
/* Needle documents: facts scattered over a text and a question about one of them, in the words that
 * the bundled model was trained to answer ("The secret of Mia's red box is 123 blue"). */
#ifndef ANTIGRAVITY_HAYSTACK_H
#define ANTIGRAVITY_HAYSTACK_H

#include "../support/text_buffer.h"

#include <antigravity/tokenizer.h>

enum { NEEDLE_MIN_TOKENS = 160 }; /* tokens that hold the facts, the question and a sentence */

typedef struct haystack {
    const ag_tokenizer *tokenizer; /* borrowed */
    const char *filler; /* borrowed UTF-8 with more than dots and blanks; NULL: made-up tales */
    size_t n_filler;
    uint64_t seed;
    uint32_t n_tokens; /* of a document with its question; at least NEEDLE_MIN_TOKENS */
} haystack;

typedef struct needle {
    ag_ids ids;                  /* owned: beginning of a text, document, question */
    size_t n_document;           /* ids before the question */
    size_t fact_begin, fact_end; /* where the fact that is asked for lies */
    char answer[32];             /* "123 blue" */
    text_buffer document;        /* owned; the text of those ids, and ".\n" */
    char question[80];           /* "What is the secret of Mia's red box?" */
} needle;

/* The document of that number, the same on every machine; depth from 0, the fact stands first, to
 * 1, last before the question. Two more facts lie anywhere. *out needs needle_free() also after a
 * failure. */
ag_status needle_make(const haystack *h, uint64_t number, double depth, needle *out, ag_error *err);
void needle_free(needle *n);

#endif
