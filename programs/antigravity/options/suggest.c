/* SPDX-License-Identifier: Apache-2.0 */
#include "suggest.h"

#include <string.h>

enum { MAX_LENGTH = 40 }; /* longer words are not mistyped names */

/* Returns the Levenshtein distance: insertions, deletions and replacements of characters. */
static size_t edit_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t row[MAX_LENGTH + 1];
    for (size_t j = 0; j <= n_b; j++) row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n_b];
}

suggestion suggestion_for(const char *typed) {
    size_t length = strcspn(typed, "=");
    return (suggestion){.typed = typed, .length = length, .distance = length / 3 + 2};
}

void suggestion_try(suggestion *s, const char *candidate) {
    size_t n = strlen(candidate);
    if (s->length > MAX_LENGTH || n > MAX_LENGTH) return;
    size_t distance = edit_distance(s->typed, s->length, candidate, n);
    if (distance >= s->distance) return;
    s->distance = distance;
    s->best = candidate;
}
