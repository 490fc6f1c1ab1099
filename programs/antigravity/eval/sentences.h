/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences for documents: those of a given text in order, or generated tales. */
#ifndef ANTIGRAVITY_SENTENCES_H
#define ANTIGRAVITY_SENTENCES_H

#include "seeded.h"

#include <stdbool.h>

enum { SENTENCE_SIZE = 1024 }; /* maximum bytes, including the NUL; longer ones are split */

typedef struct sentences {
    const char *text; /* borrowed UTF-8 with more than dots and blanks; NULL: generated tales */
    size_t n_text;
    size_t at;
    seeded *random; /* borrowed */
} sentences;

/* Returns whether the text has more than dots and blanks. */
bool sentences_in(const char *text, size_t n);
/* Moves to a random sentence of the text. The text wraps around at its end. */
void sentences_open(sentences *s);
/* Writes the next sentence without its final dot to out[SENTENCE_SIZE]. */
void sentences_next(sentences *s, char *out);

#endif
