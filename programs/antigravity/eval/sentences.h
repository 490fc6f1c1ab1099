/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences for documents: those of a text, one after the other, or made-up tales. */
#ifndef ANTIGRAVITY_SENTENCES_H
#define ANTIGRAVITY_SENTENCES_H

#include "seeded.h"

#include <stdbool.h>

enum { SENTENCE_SIZE = 1024 }; /* bytes of the longest, its NUL included; a text's are cut there */

typedef struct sentences {
    const char *text; /* borrowed UTF-8 with more than dots and blanks; NULL: made-up tales */
    size_t n_text;
    size_t at;
    seeded *random; /* borrowed */
} sentences;

/* Whether there is anything but dots and blanks. */
bool sentences_in(const char *text, size_t n);
/* A text begins at some sentence, and anew after its last. */
void sentences_open(sentences *s);
/* Without the dot at its end; out[SENTENCE_SIZE]. */
void sentences_next(sentences *s, char *out);

#endif
