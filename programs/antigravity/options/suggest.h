/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean ...?": the nearest of the known words to a mistyped one. */
#ifndef ANTIGRAVITY_SUGGEST_H
#define ANTIGRAVITY_SUGGEST_H

#include <stddef.h>

typedef struct suggestion {
    const char *typed;
    size_t length;   /* of typed, up to a '=' */
    size_t distance; /* edits from typed to best; worse ones are not proposed */
    const char *best;
} suggestion;

suggestion suggestion_for(const char *typed);
void suggestion_try(suggestion *s, const char *candidate);

#endif
