/* SPDX-License-Identifier: Apache-2.0 */
/* Parses decimal numbers: no surrounding text, within a range. */
#ifndef ANTIGRAVITY_NUMBERS_H
#define ANTIGRAVITY_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MESSAGE_SIZE = 320 }; /* size of a message such as "'12x' is not a whole number" */

/* Writes the reason to message[MESSAGE_SIZE] and returns false. */
bool reject(char *message, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Parse one number. On false *out is unchanged and message[MESSAGE_SIZE] has the reason, without a
 * newline. */
bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *out, char *message);
bool parse_real(const char *text, double low, double high, double *out, char *message);
/* Parses "2G", "512M" or "1.5GiB". The units are powers of 1024. */
bool parse_size(const char *value, uint64_t *out, char *message);

/* Parses a duration as Go writes it: "1h30m", "-1ms". Returns false unless all of the text is
 * one. */
bool parse_duration(const char *text, double *seconds);

/* List of numbers of an option. */
enum { MAX_NUMBERS = 16 };
typedef struct number_list {
    uint32_t v[MAX_NUMBERS];
    size_t n;
} number_list;

/* Returns the largest number of the list; 0 if it is empty. */
uint32_t max_number(const number_list *list);

/* Parses a list of 1 to MAX_NUMBERS numbers; low >= 0. */
bool parse_list(const char *text, int32_t low, int32_t high, number_list *out, char *message);

/* Copies the word before the first comma of *list, cut to cap - 1 bytes. Sets *list to the text
 * after the comma; NULL after the last word. */
void next_word(const char **list, char *word, size_t cap);

/* Parses len bytes of integers separated by commas or white space; the list may be empty. The
 * caller frees *out; NULL after a failure. */
bool parse_integers(const char *text, size_t len, int32_t low, int32_t high, int32_t **out,
                    size_t *n, char *message);

#endif
