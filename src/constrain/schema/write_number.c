/* SPDX-License-Identifier: Apache-2.0 */
/* A number is read digit by digit. As long as its digits are those of a limit, the next one is
 * compared; once they differ, the limit is behind. Of a multiple, the rest of what was read is
 * kept. Numbers with a limit have no exponent. */
#include "constrain/schema/write_number.h"

#include "constrain/pda/json_rules.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers beyond are not written where there is a limit. */
#define MOST_LIMIT 1e30

enum { MAX_DIGITS = 40, MAX_STEP = 1000 };

/* A limit without its sign: 12.5 is "12" and "5". */
typedef struct limit {
    bool there, open; /* open: the limit itself is out */
    char whole[MAX_DIGITS + 1], part[MAX_DIGITS + 1];
    size_t n_whole, n_part;
} limit;

typedef struct range {
    ag_net *net;
    limit least, most; /* both 0 or more */
    bool integer;
    bool fraction;   /* no integers: the rest is 1 once a digit behind the point is not 0 */
    unsigned step;   /* the multiple, in units of the last place; 0: any */
    size_t n_places; /* of a multiple, behind the point */
    uint32_t next;
    uint32_t free_part; /* any digits behind the point and at least one; 0: not written yet */
    size_t n_digits;    /* before the point, of the numbers that are written now */
} range;

/* Digits of a double as text; false: too many. */
static bool read_limit(double value, limit *out) {
    char text[64];
    value = fabs(value);
    if (value > MOST_LIMIT) return false;
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
    out->there = true;
    out->n_whole = out->n_part = 0;
    for (int i = exponent < 0 ? exponent : 0; i <= exponent || i < (int)n; i++) {
        const char c = i >= 0 && i < (int)n ? digits[i] : '0';
        if (i <= exponent && exponent >= 0) out->whole[out->n_whole++] = c;
        else out->part[out->n_part++] = c;
    }
    if (exponent < 0) {
        /* 0.00ddd: -exponent - 1 zeros, then the digits */
        out->n_part = 0;
        for (int i = 0; i < -exponent - 1; i++) out->part[out->n_part++] = '0';
        for (size_t i = 0; i < n; i++) out->part[out->n_part++] = digits[i];
    }
    while (out->n_part && out->part[out->n_part - 1] == '0') out->n_part--;
    if (!out->n_whole) out->whole[out->n_whole++] = '0';
    return true;
}

/* How digits so far compare with a limit: `at` says before, d is the next of the number, l that of
 * the limit. -1: smaller, 1: larger, 0: still the same. */
static int compare_digit(int d, int l) { return d < l ? -1 : d > l; }

static unsigned rest_after(const range *r, unsigned rest, int digit) {
    return r->step ? (rest * 10 + (unsigned)digit) % r->step : 0;
}

static unsigned rest_behind_point(const range *r, unsigned rest, int digit) {
    return r->fraction ? rest | (digit != 0) : rest_after(r, rest, digit);
}

static int limit_part(const limit *l, size_t at) { return at < l->n_part ? l->part[at] - '0' : 0; }

/* Whether the number may end with so many places behind the point. */
static bool may_end(const range *r, size_t places, bool low, bool high, unsigned rest) {
    if (low && (places < r->least.n_part || r->least.open)) return false;
    if (high && places >= r->most.n_part && r->most.open) return false;
    for (size_t i = places; r->step && i < r->n_places; i++) rest = rest_after(r, rest, 0);
    return r->fraction ? rest : rest == 0;
}

static uint32_t free_digits(range *r) {
    if (!r->free_part) {
        const uint32_t loop = ag_net_split(r->net, AG_NET_NOWHERE, r->next);
        r->free_part = ag_net_bytes(r->net, '0', '9', loop);
        ag_net_patch(r->net, loop, r->free_part);
    }
    return r->free_part;
}

/* Any digits, of which one is not 0. */
static uint32_t nonzero_digits(ag_net *net, uint32_t next) {
    const uint32_t tail = ag_net_split(net, AG_NET_NOWHERE, next);
    ag_net_patch(net, tail, ag_net_bytes(net, '0', '9', tail));
    const uint32_t part = ag_net_split(net, AG_NET_NOWHERE, ag_net_bytes(net, '1', '9', tail));
    ag_net_patch(net, part, ag_net_bytes(net, '0', '0', part));
    return part;
}

static uint32_t part_digits(range *r, size_t at, bool low, bool high, unsigned rest);

/* Behind the digits of both limits: the number is on one, or free. On the upper one only zeros may
 * follow. */
static uint32_t beyond_limits(range *r, size_t at, bool low, bool high, unsigned rest) {
    ag_net *net = r->net;
    if (!low && !high) {
        if (r->fraction && !rest) return nonzero_digits(net, r->next);
        const uint32_t digit = free_digits(r);
        return at > 0 ? ag_net_either(net, digit, r->next) : digit;
    }
    const bool ends = may_end(r, at + 1, low, high, rest);
    const uint32_t loop = ag_net_split(net, AG_NET_NOWHERE, ends ? r->next : AG_NET_NOWHERE);
    const uint32_t zero = ag_net_bytes(net, '0', '0', loop);
    uint32_t way = zero;
    if (!high) {
        const uint32_t free = part_digits(r, at + 1, false, false, r->fraction);
        way = ag_net_either(net, way, ag_net_bytes(net, '1', '9', free));
    }
    ag_net_patch(net, loop, way);
    const bool ends_here = at > 0 && may_end(r, at, low, high, rest);
    return ag_net_either(net, way, ends_here ? r->next : AG_NET_NOWHERE);
}

/* Digits behind the point; low, high: the number is still equal to that limit. */
static uint32_t part_digits(range *r, size_t at, bool low, bool high, unsigned rest) {
    ag_net *net = r->net;
    const bool bound = (low && at < r->least.n_part) || (high && at < r->most.n_part);
    uint32_t way = AG_NET_NOWHERE;
    const bool ends = at > 0 && may_end(r, at, low, high, rest);
    if (net->status != AG_OK) return way;
    if (r->step) {
        if (at >= r->n_places) return ends ? r->next : way;
    } else if (!bound) {
        return beyond_limits(r, at, low, high, rest);
    }
    for (int d = 0; d <= 9; d++) {
        const int l = low ? compare_digit(d, limit_part(&r->least, at)) : 1;
        const int h = high ? compare_digit(d, limit_part(&r->most, at)) : -1;
        if (l < 0 || h > 0) continue;
        const uint32_t after =
            part_digits(r, at + 1, l == 0, h == 0, rest_behind_point(r, rest, d));
        if (after == AG_NET_NOWHERE) continue;
        way = ag_net_either(net, way,
                            ag_net_bytes(net, (uint8_t)('0' + d), (uint8_t)('0' + d), after));
    }
    return ag_net_either(net, way, ends ? r->next : AG_NET_NOWHERE);
}

/* The number's whole part is over. */
static uint32_t after_whole(range *r, bool low, bool high, unsigned rest) {
    uint32_t way = AG_NET_NOWHERE;
    if (may_end(r, 0, low, high, rest)) way = r->next;
    if (r->integer || (r->step && !r->n_places)) return way;
    const uint32_t part = part_digits(r, 0, low, high, rest);
    if (part == AG_NET_NOWHERE) return way;
    return ag_net_either(r->net, way, ag_net_bytes(r->net, '.', '.', part));
}

/* Digit `at` of a number with r->n_digits. memo: of digits that no limit binds any more. */
static uint32_t whole_digits(range *r, size_t at, bool low, bool high, unsigned rest,
                             uint32_t *memo) {
    if (r->net->status != AG_OK) return AG_NET_NOWHERE;
    uint32_t *known = low || high ? NULL : &memo[at * (r->step ? r->step : 1) + rest];
    if (known && *known) return *known - 1;
    uint32_t way = AG_NET_NOWHERE;
    if (at == r->n_digits) way = after_whole(r, low, high, rest);
    for (int d = at == 0 && r->n_digits > 1 ? 1 : 0; at < r->n_digits && d <= 9; d++) {
        const int l = low ? compare_digit(d, r->least.whole[at] - '0') : 1;
        const int h = high ? compare_digit(d, r->most.whole[at] - '0') : -1;
        if (l < 0 || h > 0) continue;
        const uint32_t after =
            whole_digits(r, at + 1, l == 0, h == 0, rest_after(r, rest, d), memo);
        if (after == AG_NET_NOWHERE) continue;
        way = ag_net_either(r->net, way,
                            ag_net_bytes(r->net, (uint8_t)('0' + d), (uint8_t)('0' + d), after));
    }
    if (known) *known = way + 1;
    return way;
}

/* Numbers of more digits than the lower limit has, without an upper one. */
static uint32_t long_numbers(range *r, size_t n_digits) {
    ag_net *net = r->net;
    const unsigned n = r->step ? r->step : 1;
    uint32_t *loops = ag_calloc(n, sizeof *loops);
    if (!loops) return AG_NET_NOWHERE;
    for (unsigned rest = 0; rest < n; rest++) {
        loops[rest] = ag_net_split(net, AG_NET_NOWHERE, after_whole(r, false, false, rest));
    }
    for (unsigned rest = 0; rest < n; rest++) {
        uint32_t way = AG_NET_NOWHERE;
        for (int d = 0; d <= 9; d++) {
            way = ag_net_either(net, way,
                                ag_net_bytes(net, (uint8_t)('0' + d), (uint8_t)('0' + d),
                                             loops[rest_after(r, rest, d)]));
        }
        ag_net_patch(net, loops[rest], way);
    }
    /* The first digits, at least n_digits of them. */
    for (size_t i = n_digits; i-- > 0;) {
        uint32_t before[MAX_STEP + 1];
        for (unsigned rest = 0; rest < (i ? n : 1); rest++) {
            before[rest] = AG_NET_NOWHERE;
            for (int d = i ? 0 : 1; d <= 9; d++) {
                before[rest] =
                    ag_net_either(net, before[rest],
                                  ag_net_bytes(net, (uint8_t)('0' + d), (uint8_t)('0' + d),
                                               loops[rest_after(r, rest, d)]));
            }
        }
        memcpy(loops, before, (i ? n : 1) * sizeof *loops);
    }
    const uint32_t first = loops[0];
    ag_free(loops);
    return first;
}

/* All numbers from least to most, both 0 or more. */
static uint32_t from_to(range *r) {
    const size_t shortest = r->least.there ? r->least.n_whole : 1;
    const size_t longest = r->most.there ? r->most.n_whole : shortest;
    uint32_t way = AG_NET_NOWHERE;
    const size_t n_memo = (MAX_DIGITS + 1) * (size_t)(r->step ? r->step : 1);
    uint32_t *memo = ag_malloc(n_memo * sizeof *memo);
    if (!memo) return way;
    for (size_t n = shortest; n <= longest; n++) {
        memset(memo, 0, n_memo * sizeof *memo);
        r->n_digits = n;
        const bool low = r->least.there && n == r->least.n_whole;
        const bool high = r->most.there && n == r->most.n_whole;
        way = ag_net_either(r->net, way, whole_digits(r, 0, low, high, 0, memo));
    }
    ag_free(memo);
    if (r->most.there) return way;
    return ag_net_either(r->net, way, long_numbers(r, longest + 1));
}

/* The step as a whole number of units of 10^-n_places. */
static bool read_step(double step, unsigned *out, size_t *n_places) {
    *out = 0;
    *n_places = 0;
    if (step == 0) return true;
    double units = step;
    for (; *n_places < 12 && fabs(units - nearbyint(units)) > 1e-9 * units; ++*n_places) {
        units *= 10;
    }
    if (units < 0.5 || nearbyint(units) > MAX_STEP) return false;
    *out = (unsigned)nearbyint(units);
    return true;
}

/* One side of zero. negative: of the limits with their signs taken off and exchanged. */
static uint32_t one_side(ag_net *net, const ag_number_shape *x, bool negative, uint32_t next,
                         bool *unsupported) {
    range r = {.net = net, .integer = x->whole, .fraction = x->n_avoid > 0, .next = next};
    const bool has_least = negative ? x->has_most : x->has_least;
    const bool has_most = negative ? x->has_least : x->has_most;
    const double least = negative ? -x->most : x->least;
    const double most = fmin(negative ? -x->least : x->most, MOST_LIMIT);
    if (has_most && (most < 0 || (most == 0 && negative))) return AG_NET_NOWHERE;
    if (!read_step(x->step, &r.step, &r.n_places)) *unsupported = true;
    if (has_least && least >= 0) {
        if (!read_limit(least, &r.least)) *unsupported = true;
        r.least.open = negative ? x->below_most : x->above_least;
    } else if (negative) {
        /* -0 is 0, which the other side has. */
        r.least = (limit){.there = true, .open = true, .whole = "0", .n_whole = 1};
    }
    if (has_most) {
        if (!read_limit(most, &r.most)) *unsupported = true;
        r.most.open = negative ? x->above_least : x->below_most;
    }
    if (*unsupported) return AG_NET_NOWHERE;
    if (r.most.there && r.least.there && r.least.n_whole > r.most.n_whole) return AG_NET_NOWHERE;
    return from_to(&r);
}

/* All numbers are told apart by their rest of this: the least common multiple of what they must or
 * must not be multiples of; 0: it is too large. */
static unsigned avoiding_period(const ag_number_shape *x) {
    double all = x->step != 0 ? x->step : 1;
    for (size_t i = 0; i < x->n_avoid && all <= MAX_STEP && all == floor(all); i++) {
        double a = all, b = x->avoid[i];
        while (b != 0) {
            const double rest = fmod(a, b);
            a = b;
            b = rest;
        }
        all = all / a * x->avoid[i];
    }
    return all <= MAX_STEP && all == floor(all) ? (unsigned)all : 0;
}

static bool may_be_rest(const ag_number_shape *x, unsigned rest) {
    bool may = x->step == 0 || fmod(rest, x->step) == 0;
    for (size_t i = 0; i < x->n_avoid; i++) may &= fmod(rest, x->avoid[i]) != 0;
    return may;
}

/* Numbers that are no multiples of any of x->avoid, without an exponent. */
static uint32_t avoiding(ag_net *net, const ag_number_shape *x, unsigned n, uint32_t next) {
    uint32_t loops[MAX_STEP];
    /* Behind a whole part that is none of them, and behind any other. */
    uint32_t zeros = AG_NET_NOWHERE, part = AG_NET_NOWHERE;
    if (!x->whole) {
        zeros = ag_net_split(net, AG_NET_NOWHERE, next);
        ag_net_patch(net, zeros, ag_net_bytes(net, '0', '0', zeros));
        zeros = ag_net_bytes(net, '.', '.', ag_net_bytes(net, '0', '0', zeros));
        if (x->step == 0) part = ag_net_bytes(net, '.', '.', nonzero_digits(net, next));
    }
    const uint32_t fits = ag_net_either(net, ag_net_either(net, next, zeros), part);
    for (unsigned rest = 0; rest < n; rest++) {
        loops[rest] = ag_net_split(net, AG_NET_NOWHERE, may_be_rest(x, rest) ? fits : part);
    }
    uint32_t first = ag_net_bytes(net, '0', '0', may_be_rest(x, 0) ? fits : part);
    for (unsigned rest = 0; rest < n; rest++) {
        uint32_t way = AG_NET_NOWHERE;
        for (unsigned d = 0; d <= 9; d++) {
            const uint8_t c = (uint8_t)('0' + d);
            way = ag_net_either(net, way, ag_net_bytes(net, c, c, loops[(rest * 10 + d) % n]));
        }
        ag_net_patch(net, loops[rest], way);
    }
    for (unsigned d = 1; d <= 9; d++) {
        const uint8_t c = (uint8_t)('0' + d);
        first = ag_net_either(net, first, ag_net_bytes(net, c, c, loops[d % n]));
    }
    return ag_net_either(net, first, ag_net_bytes(net, '-', '-', first));
}

uint32_t ag_net_number(ag_net *net, const ag_number_shape *x, uint32_t next, bool *unsupported) {
    *unsupported = false;
    const bool fraction = x->n_avoid == 1 && x->avoid[0] == 1 && x->step == 0;
    const bool limits = x->has_least || x->has_most;
    if (x->n_avoid && !x->is_list && !(fraction && limits)) {
        const unsigned period = avoiding_period(x);
        *unsupported = limits || !period;
        return *unsupported ? AG_NET_NOWHERE : avoiding(net, x, period, next);
    }
    if (x->is_list) {
        uint32_t way = AG_NET_NOWHERE;
        for (size_t i = 0; i < x->n_values; i++) {
            way = ag_net_either(net, way, ag_net_number_value(net, x->values[i], next));
        }
        return way;
    }
    if (!x->has_least && !x->has_most && x->step == 0) {
        return x->whole ? ag_net_regex(net, "-?(0|[1-9][0-9]*)", next) : ag_json_number(net, next);
    }
    const uint32_t positive = one_side(net, x, false, next, unsupported);
    const uint32_t negative = one_side(net, x, true, next, unsupported);
    if (negative == AG_NET_NOWHERE) return positive;
    return ag_net_either(net, positive, ag_net_bytes(net, '-', '-', negative));
}

uint32_t ag_net_number_value(ag_net *net, const json_t *value, uint32_t next) {
    char text[64];
    if (json_is_integer(value)) {
        const int n = snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        return ag_net_literal(net, text, (size_t)n, next);
    }
    const double v = json_real_value(value);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    uint32_t way = ag_net_literal(net, text, strlen(text), next);
    if (v == floor(v) && fabs(v) < 1e15) {
        const int n = snprintf(text, sizeof text, "%.1f", v);
        way = ag_net_either(net, way, ag_net_literal(net, text, (size_t)n, next));
        way = ag_net_either(net, way, ag_net_literal(net, text, (size_t)n - 2, next));
    }
    return way;
}
