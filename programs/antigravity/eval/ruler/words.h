/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabulary of RULER prompts: words, numbers, UUIDs, variable names, coded words. */
#ifndef ANTIGRAVITY_RULER_WORDS_H
#define ANTIGRAVITY_RULER_WORDS_H

#include "../seeded.h"

enum { RULER_WORD_SIZE = 40 }; /* maximum bytes, including the NUL */

typedef enum ruler_kind {
    RULER_WORDS,   /* "quiet-harbour" */
    RULER_NUMBERS, /* seven digits */
    RULER_UUIDS,   /* version 4 */
} ruler_kind;

const char *ruler_kind_name(ruler_kind kind); /* "words", ... */
void ruler_value(ruler_kind kind, seeded *r, char out[RULER_WORD_SIZE]);

/* Writes n random letters of the 26 from `first` on ('a', 'A'); n < RULER_WORD_SIZE. */
void ruler_letters(seeded *r, char first, size_t n, char out[RULER_WORD_SIZE]);

/* Distinct words: first single words, then compounds of two nouns. */
size_t ruler_n_words(void);
void ruler_word(size_t i, char out[RULER_WORD_SIZE]); /* i < ruler_n_words() */
/* Chooses n words at random, in random order. Compounds only if there are too few single words. */
void ruler_choose_words(seeded *r, size_t n, size_t order[]);

/* Sets order[0..n) to random distinct numbers below `of`, ascending; n <= of. */
void ruler_choose(seeded *r, size_t of, size_t n, size_t order[]);
void ruler_shuffle(seeded *r, size_t n, size_t order[]);

#endif
