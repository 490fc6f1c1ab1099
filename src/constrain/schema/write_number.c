/* SPDX-License-Identifier: Apache-2.0 */
/* Writes numbers digit by digit. While the digits equal those of a limit, the next digit is
 * compared; once they differ, the limit no longer matters. For multiples the remainder is tracked.
 * Numbers with a limit have no exponent. Where no limit bounds the digits, AG_JSON_DIGITS_MAX
 * does, except for multiples of more than one unit and negated sets. */
#include "constrain/schema/writer.h"

#include "constrain/pda/json_rules.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Larger numbers are not written if there is a limit. */
#define LIMIT_MAX 1e30

enum { MAX_DIGITS = 40, MAX_STEP = 1000 };

/* A limit without its sign: 12.5 is "12" and "5". */
typedef struct limit {
    bool is_set, exclusive; /* exclusive: the limit itself is excluded */
    char integer[MAX_DIGITS + 1], fraction[MAX_DIGITS + 1];
    size_t n_integer, n_fraction;
} limit;

typedef struct range {
    ag_pda *pda;
    limit min, max; /* both 0 or more */
    bool is_integer;
    bool not_integer;  /* no integers: the remainder is 1 once a decimal is not 0 */
    unsigned step;     /* the multiple, in units of the last decimal; 0: any */
    size_t n_decimals; /* decimals of a multiple */
    uint32_t next;
    /* Decimals of any kind, by index of the first one and remainder; 0: not written yet. */
    uint32_t free_decimals[AG_JSON_DIGITS_MAX + 1][2];
    size_t n_digits; /* digits before the point of the numbers being written */
} range;

/* Reads the digits of a double. Returns false if there are too many. */
static bool read_limit(double value, limit *out) {
    char text[64];
    value = fabs(value);
    if (value > LIMIT_MAX) return false;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value) break;
    }
    /* d.ddde+XX */
    char digits[24];
    size_t n = 0;
    const char *e = strchr(text, 'e');
    for (const char *p = text; p < e; p++) {
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    }
    const int exponent = atoi(e + 1);
    if (exponent < -18) return false;
    out->is_set = true;
    out->n_integer = out->n_fraction = 0;
    for (int i = exponent < 0 ? exponent : 0; i <= exponent || i < (int)n; i++) {
        const char c = i >= 0 && i < (int)n ? digits[i] : '0';
        if (i <= exponent && exponent >= 0) out->integer[out->n_integer++] = c;
        else out->fraction[out->n_fraction++] = c;
    }
    if (exponent < 0) {
        /* 0.00ddd: -exponent - 1 zeros, then the digits */
        out->n_fraction = 0;
        for (int i = 0; i < -exponent - 1; i++) out->fraction[out->n_fraction++] = '0';
        for (size_t i = 0; i < n; i++) out->fraction[out->n_fraction++] = digits[i];
    }
    while (out->n_fraction && out->fraction[out->n_fraction - 1] == '0') out->n_fraction--;
    if (!out->n_integer) out->integer[out->n_integer++] = '0';
    return true;
}

/* Compares a digit of the number with one of the limit. Returns -1, 0 or 1. */
static int compare_digit(int d, int l) { return d < l ? -1 : d > l; }

static uint32_t digit(ag_pda *pda, int d, uint32_t next) {
    return ag_pda_byte(pda, (char)('0' + d), next);
}

/* Writes a digit from `lowest` to 9, then next[remainder of the longer number by n]. */
static uint32_t any_digit(ag_pda *pda, int lowest, const uint32_t *next, unsigned n,
                          unsigned remainder) {
    uint32_t start = AG_PDA_FAIL;
    if (n == 1 && next[0] != AG_PDA_FAIL)
        return ag_pda_bytes(pda, (uint8_t)('0' + lowest), '9', next[0]);
    for (int d = lowest; d <= 9; d++) {
        const uint32_t after = next[(remainder * 10 + (unsigned)d) % n];
        if (after != AG_PDA_FAIL) start = ag_pda_either(pda, start, digit(pda, d, after));
    }
    return start;
}

static unsigned remainder_after(const range *r, unsigned remainder, int digit) {
    return r->step ? (remainder * 10 + (unsigned)digit) % r->step : 0;
}

static unsigned remainder_after_point(const range *r, unsigned remainder, int digit) {
    return r->not_integer ? remainder | (digit != 0) : remainder_after(r, remainder, digit);
}

static int fraction_digit(const limit *l, size_t at) {
    return at < l->n_fraction ? l->fraction[at] - '0' : 0;
}

/* Returns whether the number may end after this many decimals. */
static bool may_end(const range *r, size_t decimals, bool low, bool high, unsigned remainder) {
    if (low && (decimals < r->min.n_fraction || r->min.exclusive)) return false;
    if (high && decimals >= r->max.n_fraction && r->max.exclusive) return false;
    for (size_t i = decimals; r->step && i < r->n_decimals; i++)
        remainder = remainder_after(r, remainder, 0);
    return r->not_integer ? remainder : remainder == 0;
}

/* Writes decimals from index `at` on that no limit restricts. */
static uint32_t free_digits(range *r, size_t at, unsigned remainder) {
    ag_pda *pda = r->pda;
    const bool ends = at > 0 && (!r->not_integer || remainder);
    if (at >= AG_JSON_DIGITS_MAX) return ends ? r->next : AG_PDA_FAIL;
    uint32_t *known = &r->free_decimals[at][remainder];
    if (*known) return *known - 1;
    const int lowest = r->not_integer && !remainder;
    const uint32_t after = free_digits(r, at + 1, r->not_integer);
    uint32_t start = ag_pda_bytes(pda, (uint8_t)('0' + lowest), '9', after);
    if (lowest) {
        const uint32_t zeros = free_digits(r, at + 1, 0);
        if (zeros != AG_PDA_FAIL) start = ag_pda_either(pda, start, digit(pda, 0, zeros));
    }
    start = ag_pda_either(pda, start, ends ? r->next : AG_PDA_FAIL);
    *known = start + 1;
    return start;
}

/* Writes decimals after the last one of both limits. The number equals a limit so far (low, high),
 * or neither. On the upper limit only zeros may follow. */
static uint32_t beyond_limits(range *r, size_t at, bool low, bool high, unsigned remainder) {
    ag_pda *pda = r->pda;
    if (!low && !high) return free_digits(r, at, remainder);
    const bool ends = at > 0 && may_end(r, at, low, high, remainder);
    uint32_t start = ends ? r->next : AG_PDA_FAIL;
    if (at >= AG_JSON_DIGITS_MAX) return start;
    const uint32_t zeros = beyond_limits(r, at + 1, low, high, remainder);
    if (zeros != AG_PDA_FAIL) start = ag_pda_either(pda, start, digit(pda, 0, zeros));
    if (high) return start;
    const uint32_t free = free_digits(r, at + 1, r->not_integer);
    if (free == AG_PDA_FAIL) return start;
    return ag_pda_either(pda, start, ag_pda_bytes(pda, '1', '9', free));
}

/* Writes decimals from index `at` on. low, high: the number equals that limit so far. */
static uint32_t fraction_digits(range *r, size_t at, bool low, bool high, unsigned remainder) {
    ag_pda *pda = r->pda;
    const bool bound = (low && at < r->min.n_fraction) || (high && at < r->max.n_fraction);
    uint32_t start = AG_PDA_FAIL;
    const bool ends = at > 0 && may_end(r, at, low, high, remainder);
    if (pda->status != AG_OK) return start;
    if (r->step) {
        if (at >= r->n_decimals) return ends ? r->next : start;
    } else if (!bound) {
        return beyond_limits(r, at, low, high, remainder);
    }
    for (int d = 0; d <= 9; d++) {
        const int l = low ? compare_digit(d, fraction_digit(&r->min, at)) : 1;
        const int h = high ? compare_digit(d, fraction_digit(&r->max, at)) : -1;
        if (l < 0 || h > 0) continue;
        const uint32_t after =
            fraction_digits(r, at + 1, l == 0, h == 0, remainder_after_point(r, remainder, d));
        if (after == AG_PDA_FAIL) continue;
        start = ag_pda_either(pda, start, digit(pda, d, after));
    }
    return ag_pda_either(pda, start, ends ? r->next : AG_PDA_FAIL);
}

/* Writes what follows the integer part. */
static uint32_t after_integer(range *r, bool low, bool high, unsigned remainder) {
    uint32_t start = AG_PDA_FAIL;
    if (may_end(r, 0, low, high, remainder)) start = r->next;
    if (r->is_integer || (r->step && !r->n_decimals)) return start;
    const uint32_t fraction = fraction_digits(r, 0, low, high, remainder);
    if (fraction == AG_PDA_FAIL) return start;
    return ag_pda_either(r->pda, start, ag_pda_byte(r->pda, '.', fraction));
}

/* Writes digit `at` of a number with r->n_digits. memo: by digit and remainder, if no limit
 * applies. */
static uint32_t integer_digits(range *r, size_t at, bool low, bool high, unsigned remainder,
                               uint32_t *memo) {
    if (r->pda->status != AG_OK) return AG_PDA_FAIL;
    uint32_t *known = low || high ? NULL : &memo[at * (r->step ? r->step : 1) + remainder];
    if (known && *known) return *known - 1;
    uint32_t start = AG_PDA_FAIL;
    if (at == r->n_digits) start = after_integer(r, low, high, remainder);
    for (int d = at == 0 && r->n_digits > 1 ? 1 : 0; at < r->n_digits && d <= 9; d++) {
        const int l = low ? compare_digit(d, r->min.integer[at] - '0') : 1;
        const int h = high ? compare_digit(d, r->max.integer[at] - '0') : -1;
        if (l < 0 || h > 0) continue;
        const uint32_t after =
            integer_digits(r, at + 1, l == 0, h == 0, remainder_after(r, remainder, d), memo);
        if (after == AG_PDA_FAIL) continue;
        start = ag_pda_either(r->pda, start, digit(r->pda, d, after));
    }
    if (known) *known = start + 1;
    return start;
}

/* Writes numbers with n_digits or more digits before the point, without an upper limit. */
static uint32_t long_numbers(range *r, size_t n_digits) {
    ag_pda *pda = r->pda;
    const unsigned n = r->step ? r->step : 1;
    const bool counted = n == 1; /* a count would multiply the remainders */
    const size_t longest = counted && n_digits < AG_JSON_DIGITS_MAX ? AG_JSON_DIGITS_MAX : n_digits;
    uint32_t ends[MAX_STEP + 1], after[MAX_STEP + 1], before[MAX_STEP + 1];
    for (unsigned remainder = 0; remainder < n; remainder++) {
        ends[remainder] = after_integer(r, false, false, remainder);
        after[remainder] =
            counted ? ends[remainder] : ag_pda_split(pda, AG_PDA_UNSET, ends[remainder]);
    }
    for (unsigned remainder = 0; !counted && remainder < n; remainder++) {
        ag_pda_patch(pda, after[remainder], any_digit(pda, 0, after, n, remainder));
    }
    for (size_t i = longest; i-- > 0;) {
        for (unsigned remainder = 0; remainder < (i ? n : 1); remainder++) {
            before[remainder] = any_digit(pda, i ? 0 : 1, after, n, remainder);
            if (i >= n_digits)
                before[remainder] = ag_pda_either(pda, before[remainder], ends[remainder]);
        }
        memcpy(after, before, (i ? n : 1) * sizeof *after);
    }
    return after[0];
}

/* Writes all numbers from min to max, both 0 or more. */
static uint32_t from_to(range *r) {
    const size_t shortest = r->min.is_set ? r->min.n_integer : 1;
    const size_t longest = r->max.is_set ? r->max.n_integer : shortest;
    uint32_t start = AG_PDA_FAIL;
    const size_t n_memo = (MAX_DIGITS + 1) * (size_t)(r->step ? r->step : 1);
    uint32_t *memo = ag_malloc(n_memo * sizeof *memo);
    if (!memo) {
        ag_error err;
        ag_pda_fail(r->pda, AG_FAIL(&err, NOMEM, "table of %zu remainders", n_memo), &err);
        return start;
    }
    for (size_t n = shortest; n <= longest; n++) {
        memset(memo, 0, n_memo * sizeof *memo);
        r->n_digits = n;
        const bool low = r->min.is_set && n == r->min.n_integer;
        const bool high = r->max.is_set && n == r->max.n_integer;
        start = ag_pda_either(r->pda, start, integer_digits(r, 0, low, high, 0, memo));
    }
    ag_free(memo);
    if (r->max.is_set) return start;
    return ag_pda_either(r->pda, start, long_numbers(r, longest + 1));
}

/* Returns the step as an integer number of units of 10^-n_decimals. */
static bool read_step(double step, unsigned *out, size_t *n_decimals) {
    *out = 0;
    *n_decimals = 0;
    if (step == 0) return true;
    double units = step;
    for (; *n_decimals < 12 && fabs(units - nearbyint(units)) > 1e-9 * units; ++*n_decimals) {
        units *= 10;
    }
    if (units < 0.5 || nearbyint(units) > MAX_STEP) return false;
    *out = (unsigned)nearbyint(units);
    return true;
}

/* Writes the numbers on one side of zero. negative: limits lose their sign and swap. */
static uint32_t one_side(ag_pda *pda, const ag_number_set *x, bool negative, uint32_t next,
                         bool *unsupported) {
    range r = {.pda = pda, .is_integer = x->integer, .not_integer = x->n_avoid > 0, .next = next};
    const bool has_min = negative ? x->has_max : x->has_min;
    const bool has_max = negative ? x->has_min : x->has_max;
    const double min = negative ? -x->max : x->min;
    const double max = fmin(negative ? -x->min : x->max, LIMIT_MAX);
    if (has_max && (max < 0 || (max == 0 && negative))) return AG_PDA_FAIL;
    if (!read_step(x->step, &r.step, &r.n_decimals)) *unsupported = true;
    if (has_min && min >= 0) {
        if (!read_limit(min, &r.min)) *unsupported = true;
        r.min.exclusive = negative ? x->max_exclusive : x->min_exclusive;
    } else if (negative) {
        /* -0 is 0, which the other side has. */
        r.min = (limit){.is_set = true, .exclusive = true, .integer = "0", .n_integer = 1};
    }
    if (has_max) {
        if (!read_limit(max, &r.max)) *unsupported = true;
        r.max.exclusive = negative ? x->min_exclusive : x->max_exclusive;
    }
    if (*unsupported) return AG_PDA_FAIL;
    if (r.max.is_set && r.min.is_set && r.min.n_integer > r.max.n_integer) return AG_PDA_FAIL;
    return from_to(&r);
}

/* Returns the period of the rule: the least common multiple of the numbers that must or must not
 * divide. Numbers with equal remainders are alike. 0: the period is too large. */
static unsigned avoiding_period(const ag_number_set *x) {
    double all = x->step != 0 ? x->step : 1;
    for (size_t i = 0; i < x->n_avoid && all <= MAX_STEP && all == floor(all); i++) {
        all = all / ag_number_gcd(all, x->avoid[i]) * x->avoid[i];
    }
    return all <= MAX_STEP && all == floor(all) ? (unsigned)all : 0;
}

static bool is_allowed_remainder(const ag_number_set *x, unsigned remainder) {
    bool may = x->step == 0 || fmod(remainder, x->step) == 0;
    for (size_t i = 0; i < x->n_avoid; i++) may &= fmod(remainder, x->avoid[i]) != 0;
    return may;
}

/* Writes the numbers that are not multiples of any of x->avoid, without an exponent. */
static uint32_t avoiding(ag_pda *pda, const ag_number_set *x, unsigned n, uint32_t next) {
    uint32_t loops[MAX_STEP];
    /* Decimals after the integer part: zeros if the integer is allowed; other decimals in any
     * case. */
    uint32_t zeros = AG_PDA_FAIL, fraction = AG_PDA_FAIL;
    if (!x->integer) {
        range r = {.pda = pda, .not_integer = true, .next = next};
        for (size_t i = 0; i < AG_JSON_DIGITS_MAX; i++) {
            zeros = digit(pda, 0, ag_pda_either(pda, next, zeros));
        }
        zeros = ag_pda_byte(pda, '.', zeros);
        if (x->step == 0) fraction = ag_pda_byte(pda, '.', free_digits(&r, 0, 0));
    }
    const uint32_t fits = ag_pda_either(pda, ag_pda_either(pda, next, zeros), fraction);
    for (unsigned remainder = 0; remainder < n; remainder++) {
        loops[remainder] =
            ag_pda_split(pda, AG_PDA_UNSET, is_allowed_remainder(x, remainder) ? fits : fraction);
    }
    uint32_t first = ag_pda_byte(pda, '0', is_allowed_remainder(x, 0) ? fits : fraction);
    for (unsigned remainder = 0; remainder < n; remainder++) {
        ag_pda_patch(pda, loops[remainder], any_digit(pda, 0, loops, n, remainder));
    }
    first = ag_pda_either(pda, first, any_digit(pda, 1, loops, n, 0));
    return ag_pda_either(pda, first, ag_pda_byte(pda, '-', first));
}

/* Writes the spellings of one number, then next. */
static uint32_t number_value(ag_pda *pda, const json_t *value, uint32_t next) {
    char text[64];
    if (json_is_integer(value)) {
        const int n = snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        return ag_pda_literal(pda, text, (size_t)n, next);
    }
    const double v = json_real_value(value);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    uint32_t start = ag_pda_literal(pda, text, strlen(text), next);
    if (v == floor(v) && fabs(v) < 1e15) {
        const int n = snprintf(text, sizeof text, "%.1f", v);
        start = ag_pda_either(pda, start, ag_pda_literal(pda, text, (size_t)n, next));
        start = ag_pda_either(pda, start, ag_pda_literal(pda, text, (size_t)n - 2, next));
    }
    return start;
}

uint32_t ag_pda_number(ag_pda *pda, const ag_json_rules *json, const ag_number_set *x,
                       uint32_t next, bool *unsupported) {
    *unsupported = false;
    const bool not_integer = x->n_avoid == 1 && x->avoid[0] == 1 && x->step == 0;
    const bool limits = x->has_min || x->has_max;
    if (x->n_avoid && !x->is_list && !(not_integer && limits)) {
        const unsigned period = avoiding_period(x);
        *unsupported = limits || !period;
        return *unsupported ? AG_PDA_FAIL : avoiding(pda, x, period, next);
    }
    if (x->is_list) {
        uint32_t start = AG_PDA_FAIL;
        for (size_t i = 0; i < x->n_values; i++) {
            start = ag_pda_either(pda, start, number_value(pda, x->values[i], next));
        }
        return start;
    }
    if (!x->has_min && !x->has_max && x->step == 0) {
        return ag_pda_call(pda, x->integer ? json->integer : json->number, next);
    }
    const uint32_t positive = one_side(pda, x, false, next, unsupported);
    const uint32_t negative = one_side(pda, x, true, next, unsupported);
    if (negative == AG_PDA_FAIL) return positive;
    return ag_pda_either(pda, positive, ag_pda_byte(pda, '-', negative));
}
