/* SPDX-License-Identifier: Apache-2.0 */
/* Needle documents: three facts scattered over filler text, and a question about one of them.
 * The wording is that of the bundled model's training data ("The secret of Mia's red box is 123
 * blue"). */
#ifndef ANTIGRAVITY_HAYSTACK_H
#define ANTIGRAVITY_HAYSTACK_H

#include "../support/text_buffer.h"

#include <antigravity/tokenizer.h>

enum { NEEDLE_MIN_TOKENS = 160 }; /* tokens of the facts, the question and one sentence */

typedef struct haystack {
    const ag_tokenizer *tokenizer; /* borrowed */
    const char *filler; /* borrowed UTF-8 with more than dots and blanks; NULL: generated tales */
    size_t n_filler;
    uint64_t seed;
    uint32_t n_tokens; /* document and question; at least NEEDLE_MIN_TOKENS */
} haystack;

typedef struct needle {
    ag_ids ids;                  /* owned: BOS, document, question */
    size_t n_document;           /* ids before the question */
    size_t fact_begin, fact_end; /* ids of the fact in question: [fact_begin, fact_end) */
    char answer[32];             /* "123 blue" */
    text_buffer document;        /* owned; text of the document, and ".\n" */
    char question[80];           /* "What is the secret of Mia's red box?" */
} needle;

/* Makes document `number`; it is the same on every machine. `depth` places the fact: 0 is the
 * start, 1 is right before the question. The other two facts have random places. *out needs
 * needle_free() also after a failure. */
ag_status needle_make(const haystack *h, uint64_t number, double depth, needle *out, ag_error *err);
void needle_free(needle *n);

#endif
