/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people type them: decimal, nothing before or after, in range. */
#ifndef ANTIGRAVITY_NUMBERS_H
#define ANTIGRAVITY_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MESSAGE_SIZE = 320,
    WHY_SIZE = MESSAGE_SIZE
}; /* space for a reason: "'12x' is not a whole number" */

/* Writes the reason to why[MESSAGE_SIZE]; returns false. */
bool reject(char *message, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* False leaves *out alone and writes the reason, without a newline, to why[MESSAGE_SIZE]. */
bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *out, char *message);
bool parse_real(const char *text, double low, double high, double *out, char *message);

/* A list that has space for what is typed on a command line. */
enum { MAX_NUMBERS = 16 };
typedef struct number_list {
    uint32_t v[MAX_NUMBERS];
    size_t n;
} number_list;

/* One number at least; low is 0 or more. */
bool parse_list(const char *text, int32_t low, int32_t high, number_list *out, char *message);

/* The word before the first comma of *list, cut at cap - 1 bytes; *list becomes what follows the
 * comma, NULL after the last word. */
void next_word(const char **list, char *word, size_t cap);

/* "1,5,9" or "1 5 9": whole numbers separated by commas or white space. len bytes are read; the
 * list may be empty. *out is the caller's to free(); NULL after failure. */
bool parse_integers(const char *text, size_t len, int32_t low, int32_t high, int32_t **out,
                    size_t *n, char *message);

#endif
