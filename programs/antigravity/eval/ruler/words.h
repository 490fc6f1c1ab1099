/* SPDX-License-Identifier: Apache-2.0 */
/* What RULER's prompts are made of: words, numbers, uuids, names of variables, coded words. */
#ifndef ANTIGRAVITY_RULER_WORDS_H
#define ANTIGRAVITY_RULER_WORDS_H

#include "../seeded.h"

enum { RULER_WORD_SIZE = 40 }; /* bytes of the longest, its NUL included */

typedef enum ruler_kind {
    RULER_WORDS,   /* "quiet-harbour" */
    RULER_NUMBERS, /* of seven digits */
    RULER_UUIDS,   /* of version 4 */
} ruler_kind;

const char *ruler_kind_name(ruler_kind kind); /* "words", ... */
void ruler_value(ruler_kind kind, seeded *r, char out[RULER_WORD_SIZE]);

/* n letters from `first` on ('a', 'A'); n < RULER_WORD_SIZE. */
void ruler_letters(seeded *r, char first, size_t n, char out[RULER_WORD_SIZE]);

/* Different words: single ones, then compounds of two. */
size_t ruler_n_words(void);
void ruler_word(size_t i, char out[RULER_WORD_SIZE]); /* i < ruler_n_words() */
/* n of them at random, in any order; compounds only where there are not enough others. */
void ruler_choose_words(seeded *r, size_t n, size_t order[]);

/* order[0..n) := different numbers below `of`, ascending; n <= of. */
void ruler_choose(seeded *r, size_t of, size_t n, size_t order[]);
void ruler_shuffle(seeded *r, size_t n, size_t order[]);

#endif
