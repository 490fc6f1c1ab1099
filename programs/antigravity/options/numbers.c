/* SPDX-License-Identifier: Apache-2.0 */
#include "numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool reject(char *message, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, MESSAGE_SIZE, fmt, args);
    va_end(args);
    return false;
}

void next_word(const char **list, char *word, size_t cap) {
    const size_t n = strcspn(*list, ",");
    snprintf(word, cap, "%.*s", (int)(n < cap ? n : cap - 1), *list);
    *list = (*list)[n] ? *list + n + 1 : NULL;
}

uint32_t max_number(const number_list *list) {
    uint32_t max = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i] > max) max = list->v[i];
    return max;
}

/* Repeats at most 60 bytes of a typed value. */
static bool reject_value(char *message, const char *text, const char *reason) {
    return reject(message, "'%.60s'%s %s", text, strlen(text) > 60 ? "..." : "", reason);
}

bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *out, char *message) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || digits[n]) return reject_value(message, text, "is not a whole number");
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno == ERANGE || v < low || v > high) {
        char reason[96];
        snprintf(reason, sizeof reason, "is not between %" PRId64 " and %" PRId64, low, high);
        if (high == INT64_MAX) snprintf(reason, sizeof reason, "is less than %" PRId64, low);
        if (high == INT64_MAX && v >= low) snprintf(reason, sizeof reason, "is too large");
        return reject_value(message, text, reason);
    }
    *out = v;
    return true;
}

bool parse_real(const char *text, double low, double high, double *out, char *message) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    char *end = NULL;
    double v = strtod(text, &end);
    /* strtod also accepts "nan", "inf", hexadecimal and leading blanks. */
    bool plain =
        digits[0] && digits[0] != '+' && strspn(digits, "0123456789.eE+-") == strlen(digits);
    if (!plain || end == text || *end) return reject_value(message, text, "is not a number");
    if (!isfinite(v) || v < low || v > high) {
        char reason[96];
        snprintf(reason, sizeof reason, "is not between %g and %g", low, high);
        return reject_value(message, text, reason);
    }
    *out = v;
    return true;
}

bool parse_size(const char *value, uint64_t *out, char *message) {
    static const char units[] = "KMGT";
    char number[32];
    double n;
    const size_t len = strspn(value, "0123456789.");
    const char *unit = value + len;
    const char *at = unit[0] ? strchr(units, unit[0] >= 'a' ? unit[0] - 'a' + 'A' : unit[0]) : NULL;
    const bool known =
        !unit[0] || (at && (!unit[1] || !strcmp(unit + 1, "iB") || !strcmp(unit + 1, "B")));
    if (!len || len >= sizeof number || !known)
        return reject(message, "'%.60s' is not a size such as 512M or 2G", value);
    memcpy(number, value, len);
    number[len] = '\0';
    if (!parse_real(number, 0, 1e15, &n, message)) return false;
    for (size_t i = 0; at && i <= (size_t)(at - units); i++) n *= 1024;
    if (n >= 0x1p64) return reject(message, "'%.60s' is more than 16777215T", value);
    *out = (uint64_t)n;
    return true;
}

static bool is_separator(char c) { return c == ',' || c == ' ' || (c >= '\t' && c <= '\r'); }

bool parse_integers(const char *text, size_t len, int32_t low, int32_t high, int32_t **out,
                    size_t *n, char *message) {
    size_t i = 0;
    *n = 0;
    *out = malloc((len / 2 + 1) * sizeof **out); /* every two numbers have a separator */
    if (!*out) snprintf(message, MESSAGE_SIZE, "out of memory");
    while (*out) {
        while (i < len && is_separator(text[i])) i++;
        if (i == len) return true;
        char word[64];
        size_t k = 0;
        while (i < len && !is_separator(text[i])) {
            if (k + 1 < sizeof word) word[k++] = text[i] ? text[i] : '?';
            i++;
        }
        word[k] = '\0';
        int64_t v;
        if (!parse_integer(word, low, high, &v, message)) break;
        (*out)[(*n)++] = (int32_t)v;
    }
    free(*out);
    *out = NULL;
    *n = 0;
    return false;
}

bool parse_list(const char *text, int32_t low, int32_t high, number_list *out, char *message) {
    int32_t *v;
    size_t n;
    if (!parse_integers(text, strlen(text), low, high, &v, &n, message)) return false;
    bool fits = n > 0 && n <= MAX_NUMBERS;
    if (!fits)
        snprintf(message, MESSAGE_SIZE, "%zu numbers given; 1 to %d are allowed", n, MAX_NUMBERS);
    for (size_t i = 0; fits && i < n; i++) out->v[i] = (uint32_t)v[i];
    if (fits) out->n = n;
    free(v);
    return fits;
}

bool parse_duration(const char *text, double *seconds) {
    static const struct {
        const char *name; /* a name that begins with another one comes first */
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    const bool is_negative = *text == '-';
    double sum = 0;
    text += *text == '-' || *text == '+';
    if (!strcmp(text, "0")) text = "0s";
    if (!*text) return false;
    while (*text) {
        char *end;
        size_t i = 0;
        if (!strchr("0123456789.", *text)) return false;
        const double n = strtod(text, &end);
        while (i < sizeof units / sizeof units[0] &&
               strncmp(end, units[i].name, strlen(units[i].name)) != 0)
            i++;
        if (end == text || i == sizeof units / sizeof units[0]) return false;
        sum += n * units[i].seconds;
        text = end + strlen(units[i].name);
    }
    *seconds = is_negative ? -sum : sum;
    return true;
}
