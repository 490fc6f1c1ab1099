/* SPDX-License-Identifier: Apache-2.0 */
/* Suggestion for a mistyped word: the known word with the smallest edit distance. */
#ifndef ANTIGRAVITY_SUGGEST_H
#define ANTIGRAVITY_SUGGEST_H

#include <stddef.h>

typedef struct suggestion {
    const char *typed;
    size_t length;   /* length of `typed` up to '=' */
    size_t distance; /* edits from `typed` to `best`; only smaller distances replace it */
    const char *best;
} suggestion;

suggestion suggestion_for(const char *typed);
void suggestion_try(suggestion *s, const char *candidate);

#endif
