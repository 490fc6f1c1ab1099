/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/value/number.h"

#include "core/ascii.h"
#include "jinja/context.h"
#include "jinja/parse/template.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

/* Returns the base of a prefix at s[at], 0 if there is none. */
static int base_of_prefix(const char *s, size_t n, size_t at) {
    if (n - at < 2 || s[at] != '0') return 0;
    char c = (char)(s[at + 1] | 0x20);
    return c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
}

static bool add_digit(uint64_t *v, int base, int d) {
    return !__builtin_mul_overflow(*v, (uint64_t)base, v) &&
           !__builtin_add_overflow(*v, (uint64_t)d, v);
}

bool ag_jparse_int(const char *s, size_t n, int base, int64_t *out) {
    size_t at = 0;
    bool negative = n && s[0] == '-';
    if (n && (s[0] == '-' || s[0] == '+')) at++;
    int prefix = base_of_prefix(s, n, at);
    bool zeros_only = false;
    if (prefix && (base == 0 || base == prefix)) {
        base = prefix;
        at += 2;
        if (at < n && s[at] == '_') at++;
    } else if (base == 0) {
        base = 10;
        zeros_only = at < n && s[at] == '0';
    }
    uint64_t v = 0;
    bool after_digit = false;
    for (; at < n; at++) {
        int d = digit_value(s[at]);
        if (s[at] == '_' && after_digit) {
            after_digit = false;
            continue;
        }
        if (d >= base || !add_digit(&v, base, d) || (zeros_only && d)) return false;
        after_digit = true;
    }
    if (!after_digit || v > (uint64_t)INT64_MAX + negative) return false;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

/* Parses inf, infinity or nan with an optional sign. */
static bool parse_special(const char *s, size_t n, double *out) {
    double sign = n && s[0] == '-' ? -1 : 1;
    if (n && (s[0] == '-' || s[0] == '+')) s++, n--;
    if ((n == 3 && ag_ascii_equal_n(s, "inf", 3)) ||
        (n == 8 && ag_ascii_equal_n(s, "infinity", 8))) {
        *out = sign * INFINITY;
        return true;
    }
    if (n != 3 || !ag_ascii_equal_n(s, "nan", 3)) return false;
    *out = NAN;
    return true;
}

/* Copies a decimal literal in the form that strtod() reads. Returns its length, 0 if it is
 * malformed. */
static size_t clean_float(const char *s, size_t n, char *out, size_t cap) {
    size_t len = 0, digits = 0;
    bool point = false, exponent = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (len + 8 > cap) return 0;
        if (c >= '0' && c <= '9') {
            digits++;
            out[len++] = c;
        } else if (c == '_') {
            bool between = i > 0 && i + 1 < n && isdigit((unsigned char)s[i - 1]) &&
                           isdigit((unsigned char)s[i + 1]);
            if (!between) return 0;
        } else if (c == '.' && !point && !exponent) {
            point = true;
            const char *locale_point = localeconv()->decimal_point;
            while (*locale_point && len + 8 < cap) out[len++] = *locale_point++;
        } else if ((c == 'e' || c == 'E') && digits && !exponent) {
            exponent = true;
            digits = 0;
            out[len++] = 'e';
            if (i + 1 < n && (s[i + 1] == '+' || s[i + 1] == '-')) out[len++] = s[++i];
        } else if ((c == '+' || c == '-') && i == 0) {
            out[len++] = c;
        } else {
            return 0;
        }
    }
    out[len] = '\0';
    return digits ? len : 0;
}

bool ag_jparse_float(const char *s, size_t n, double *out) {
    char text[400]; /* longer literals are rejected */
    if (parse_special(s, n, out)) return true;
    if (!clean_float(s, n, text, sizeof text)) return false;
    *out = strtod(text, NULL);
    return true;
}

/* Formats d with %.*e or %.*f and a decimal point in any locale. Returns the length. */
static int format_double(char *out, size_t cap, char conversion, int precision, double d) {
    int len = snprintf(out, cap, conversion == 'e' ? "%.*e" : "%.*f", precision, d);
    const char *locale_point = localeconv()->decimal_point;
    size_t locale_point_len = strlen(locale_point);
    char *p = locale_point_len && strcmp(locale_point, ".") && cap && (size_t)len < cap
                  ? strstr(out, locale_point)
                  : NULL;
    if (p) {
        *p = '.';
        memmove(p + 1, p + locale_point_len, strlen(p + locale_point_len) + 1);
        len -= (int)locale_point_len - 1;
    }
    return len;
}

/* Writes the digits of d > 0, rounded to `precision` digits, without the point. Returns the
 * exponent. */
static int decimal_digits(double d, int precision, char *digits) {
    char text[40];
    format_double(text, sizeof text, 'e', precision - 1, d);
    size_t n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++) {
        if (*p != '.') digits[n++] = *p;
    }
    digits[n] = '\0';
    return *p ? atoi(p + 1) : 0;
}

static double from_digits(const char *digits, int exponent) {
    char text[40];
    double d = 0;
    int n =
        snprintf(text, sizeof text, "%c.%se%d", digits[0], digits[1] ? digits + 1 : "0", exponent);
    ag_jparse_float(text, (size_t)n, &d);
    return d;
}

/* Adds `by` (1 or -1) to the last digit. Returns false if the carry or borrow overflows the first
 * digit. */
static bool step_last(char *digits, int by) {
    for (size_t i = strlen(digits); i-- > 0;) {
        char next = (char)(digits[i] + by);
        if (next >= '0' && next <= '9') return digits[i] = next, i > 0 || next > '0';
        digits[i] = by > 0 ? '0' : '9';
    }
    return false;
}

/* Finds the fewest digits that read back as d > 0. Returns the exponent. Below a power of two a
 * neighbour of the nearest decimal can be the only one that reads back. */
static int shortest_digits(double d, char *digits) {
    int exponent = 0;
    for (int precision = d < 1e-300 ? 1 : 15; precision <= 17; precision++) {
        exponent = decimal_digits(d, precision, digits);
        if (precision == 17 || from_digits(digits, exponent) == d) break;
        for (int by = -1; by <= 1; by += 2) {
            char other[24];
            strcpy(other, digits);
            if (step_last(other, by) && from_digits(other, exponent) == d) {
                strcpy(digits, other);
                return exponent;
            }
        }
    }
    return exponent;
}

size_t ag_jfloat_repr(double d, char out[AG_JFLOAT_BYTES]) {
    if (isnan(d)) return strcpy(out, "nan"), 3;
    size_t n = 0;
    if (signbit(d)) out[n++] = '-';
    if (isinf(d)) return strcpy(out + n, "inf"), n + 3;
    char digits[24] = "0";
    int exponent = d == 0 ? 0 : shortest_digits(fabs(d), digits);
    int len = (int)strlen(digits);
    while (len > 1 && digits[len - 1] == '0') digits[--len] = '\0';
    if (exponent < -4 || exponent >= 16) {
        n += (size_t)snprintf(out + n, AG_JFLOAT_BYTES - n, "%c%s%se%c%02d", digits[0],
                              len > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                              abs(exponent));
    } else if (exponent < 0) {
        n += (size_t)snprintf(out + n, AG_JFLOAT_BYTES - n, "0.%.*s%s", -exponent - 1, "0000",
                              digits);
    } else if (len <= exponent + 1) {
        n += (size_t)snprintf(out + n, AG_JFLOAT_BYTES - n, "%s%.*s.0", digits, exponent + 1 - len,
                              "0000000000000000");
    } else {
        n += (size_t)snprintf(out + n, AG_JFLOAT_BYTES - n, "%.*s.%s", exponent + 1, digits,
                              digits + exponent + 1);
    }
    return n;
}

static ag_jv too_large(ag_jctx *c) {
    return ag_jfail_as(c, AG_UNSUPPORTED, "an integer exceeds 64 bits");
}

static ag_jv int_power(ag_jctx *c, int64_t base, int64_t exponent) {
    int64_t result = 1;
    while (exponent) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return too_large(c);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return too_large(c);
    }
    return ag_jint(result);
}

static ag_jv float_power(ag_jctx *c, double a, double b) {
    if (a == 0 && b < 0) return ag_jfail(c, "zero cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) {
        return ag_jfail_as(c, AG_UNSUPPORTED, "complex numbers are not supported");
    }
    double d = pow(a, b);
    if (isinf(d) && isfinite(a) && isfinite(b)) return ag_jfail(c, "result too large");
    return ag_jfloat(d);
}

static double floor_mod(double a, double b) {
    double m = fmod(a, b);
    if (m == 0) return copysign(0.0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

/* Follows CPython, so that a is close to (a // b) * b + a % b. */
static double floor_divide(double a, double b) {
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0)) q -= 1;
    if (q == 0) return copysign(0.0, a / b);
    double integral = floor(q);
    return q - integral > 0.5 ? integral + 1 : integral;
}

static ag_jv float_op(ag_jctx *c, int op, double a, double b) {
    if (b == 0 && (op == AG_JOP_DIV || op == AG_JOP_FLOORDIV || op == AG_JOP_MOD)) {
        return ag_jfail(c, "division by zero");
    }
    switch (op) {
    case AG_JOP_ADD:
        return ag_jfloat(a + b);
    case AG_JOP_SUB:
        return ag_jfloat(a - b);
    case AG_JOP_MUL:
        return ag_jfloat(a * b);
    case AG_JOP_DIV:
        return ag_jfloat(a / b);
    case AG_JOP_FLOORDIV:
        return ag_jfloat(floor_divide(a, b));
    case AG_JOP_MOD:
        return ag_jfloat(floor_mod(a, b));
    default:
        return float_power(c, a, b);
    }
}

static ag_jv int_op(ag_jctx *c, int op, int64_t a, int64_t b) {
    int64_t r = 0;
    if (b == 0 && (op == AG_JOP_DIV || op == AG_JOP_FLOORDIV || op == AG_JOP_MOD)) {
        return ag_jfail(c, "division by zero");
    }
    bool overflow = false;
    switch (op) {
    case AG_JOP_ADD:
        overflow = __builtin_add_overflow(a, b, &r);
        break;
    case AG_JOP_SUB:
        overflow = __builtin_sub_overflow(a, b, &r);
        break;
    case AG_JOP_MUL:
        overflow = __builtin_mul_overflow(a, b, &r);
        break;
    case AG_JOP_DIV:
        return ag_jfloat((double)((long double)a / (long double)b));
    case AG_JOP_FLOORDIV:
        if (b == -1) overflow = __builtin_sub_overflow(0, a, &r);
        else r = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case AG_JOP_MOD:
        if (b != -1) r = a % b;
        if (r != 0 && (r < 0) != (b < 0)) r += b;
        break;
    default:
        if (b < 0) return float_power(c, (double)a, (double)b);
        return int_power(c, a, b);
    }
    return overflow ? too_large(c) : ag_jint(r);
}

ag_jv ag_jnumber_op(ag_jctx *c, int op, ag_jv a, ag_jv b) {
    if (a.kind == AG_JFLOAT || b.kind == AG_JFLOAT) {
        return float_op(c, op, ag_jnumber(a), ag_jnumber(b));
    }
    return int_op(c, op, ag_jinteger(a), ag_jinteger(b));
}

/* Checks the range and the fraction before any conversion. */
static int compare_int_double(int64_t i, double d) {
    if (isnan(d)) return 2;
    if (d >= 9223372036854775808.0) return -1;
    if (d < -9223372036854775808.0) return 1;
    int64_t integral = (int64_t)d;
    if (i != integral) return i < integral ? -1 : 1;
    double fraction = d - (double)integral;
    return fraction > 0 ? -1 : fraction < 0 ? 1 : 0;
}

int ag_jnumber_compare(ag_jv a, ag_jv b) {
    if (a.kind == AG_JFLOAT && b.kind == AG_JFLOAT) {
        double x = a.as.number, y = b.as.number;
        if (isnan(x) || isnan(y)) return 2;
        return (x > y) - (x < y);
    }
    if (b.kind == AG_JFLOAT) return compare_int_double(ag_jinteger(a), b.as.number);
    if (a.kind == AG_JFLOAT) {
        int r = compare_int_double(ag_jinteger(b), a.as.number);
        return r == 2 ? 2 : -r;
    }
    int64_t x = ag_jinteger(a), y = ag_jinteger(b);
    return (x > y) - (x < y);
}

ag_jv ag_jint_of_double(ag_jctx *c, double d) {
    if (isnan(d)) return ag_jfail(c, "cannot convert float NaN to integer");
    if (isinf(d)) return ag_jfail(c, "cannot convert float infinity to integer");
    if (d >= 9223372036854775808.0 || d < -9223372036854775808.0) return too_large(c);
    return ag_jint((int64_t)d);
}

double ag_jround(double d, int64_t digits) {
    if (!isfinite(d) || digits > 323) return d;
    if (digits < -308) return copysign(0.0, d);
    if (digits > 0) { /* the decimal conversion rounds correctly, with the exact value of a half */
        char text[700];
        double r = d;
        int n = format_double(text, sizeof text, 'f', (int)digits, d);
        return n > 0 && (size_t)n < sizeof text && n < 390 && ag_jparse_float(text, (size_t)n, &r)
                   ? r
                   : d;
    }
    if (digits == 0) return nearbyint(d);
    double scale = pow(10, (double)-digits);
    return nearbyint(d / scale) * scale;
}
