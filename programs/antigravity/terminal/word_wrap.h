/* SPDX-License-Identifier: Apache-2.0 */
/* Word wrap: breaks the lines of a streamed text before words that exceed the terminal's width. */
#ifndef ANTIGRAVITY_WORD_WRAP_H
#define ANTIGRAVITY_WORD_WRAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct word_wrap {
    size_t width;      /* columns of the terminal; 0: the text stays as it is */
    size_t column;     /* columns written in this line */
    size_t n_blanks;   /* blanks before the pending word */
    char word[128];    /* [n] bytes of the pending word */
    size_t n, columns; /* bytes and columns of the pending word */
    bool is_joined;    /* the pending bytes continue a word that was written in part */
    size_t n_fence;    /* backticks at the start of this line */
    bool in_code;      /* between two lines that begin with three backticks */
} word_wrap;

/* Returns a wrap for standard output: of its terminal's width, or of none if it is not a
 * terminal. */
word_wrap word_wrap_begin(void);
/* Writes model output. The last word is pending until its end is known. len bytes hold complete
 * characters of UTF-8. */
void word_wrap_write(word_wrap *w, const char *text, size_t len);
/* Writes the pending word. */
void word_wrap_flush(word_wrap *w);

#endif
