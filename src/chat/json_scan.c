/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/json_scan.h"

enum {
    VALUE, /* before a value; the state of a zeroed scan */
    FIRST_VALUE,
    FIRST_KEY, /* after '{': a key or '}' */
    KEY,
    COLON,
    AFTER_VALUE, /* after a value in an array or an object */
    STRING,
    ESCAPE,
    HEX,
    LITERAL,
    MINUS,
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
    DONE,
};

static ag_json_scan_result go(ag_json_scan *s, uint8_t state) {
    s->state = state;
    return AG_JSON_SCAN_MORE;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static ag_json_scan_result value_ends(ag_json_scan *s) {
    s->state = s->depth ? AFTER_VALUE : DONE;
    return s->depth ? AG_JSON_SCAN_MORE : AG_JSON_SCAN_END;
}

static ag_json_scan_result opens(ag_json_scan *s, char c) {
    if (s->depth == AG_JSON_SCAN_DEPTH) return AG_JSON_SCAN_BAD;
    s->in_object[s->depth++] = c == '{';
    return go(s, c == '{' ? FIRST_KEY : FIRST_VALUE);
}

static ag_json_scan_result closes(ag_json_scan *s, char c) {
    if (s->depth == 0 || s->in_object[s->depth - 1] != (c == '}')) return AG_JSON_SCAN_BAD;
    s->depth--;
    return value_ends(s);
}

/* Handles the first byte of a value. */
static ag_json_scan_result begins_value(ag_json_scan *s, char c) {
    s->is_key = false;
    switch (c) {
    case '{':
    case '[':
        return opens(s, c);
    case '"':
        return go(s, STRING);
    case '-':
        return go(s, MINUS);
    case '0':
        return go(s, ZERO);
    case 't':
        s->literal = "rue";
        return go(s, LITERAL);
    case 'f':
        s->literal = "alse";
        return go(s, LITERAL);
    case 'n':
        s->literal = "ull";
        return go(s, LITERAL);
    default:
        return c >= '1' && c <= '9' ? go(s, DIGITS) : AG_JSON_SCAN_BAD;
    }
}

static ag_json_scan_result after_value(ag_json_scan *s, char c) {
    if (c == ',') return go(s, s->in_object[s->depth - 1] ? KEY : VALUE);
    if (c == '}' || c == ']') return closes(s, c);
    return AG_JSON_SCAN_BAD;
}

static ag_json_scan_result in_string(ag_json_scan *s, char c) {
    if (c == '\\') return go(s, ESCAPE);
    if (c == '"') return s->is_key ? go(s, COLON) : value_ends(s);
    return (unsigned char)c < 0x20 ? AG_JSON_SCAN_BAD : AG_JSON_SCAN_MORE;
}

static ag_json_scan_result in_escape(ag_json_scan *s, char c) {
    if (s->state == ESCAPE && c == 'u') {
        s->hex = 4;
        return go(s, HEX);
    }
    if (s->state == HEX) {
        if (!is_hex(c)) return AG_JSON_SCAN_BAD;
        return --s->hex ? AG_JSON_SCAN_MORE : go(s, STRING);
    }
    for (const char *e = "\"\\/bfnrt"; *e; e++) {
        if (c == *e) return go(s, STRING);
    }
    return AG_JSON_SCAN_BAD;
}

static ag_json_scan_result in_literal(ag_json_scan *s, char c) {
    if (c != *s->literal) return AG_JSON_SCAN_BAD;
    return *++s->literal ? AG_JSON_SCAN_MORE : value_ends(s);
}

static bool may_end_number(uint8_t state) {
    return state == ZERO || state == DIGITS || state == FRACTION || state == EXPONENT_DIGITS;
}

/* Handles a byte in a number, or the byte after one inside brackets. */
static ag_json_scan_result in_number(ag_json_scan *s, char c) {
    const uint8_t at = s->state;
    if (is_digit(c)) {
        if (at == MINUS) return go(s, c == '0' ? ZERO : DIGITS);
        if (at == ZERO) return AG_JSON_SCAN_BAD;
        if (at == POINT) return go(s, FRACTION);
        if (at == EXPONENT || at == EXPONENT_SIGN) return go(s, EXPONENT_DIGITS);
        return AG_JSON_SCAN_MORE;
    }
    if (c == '.' && (at == ZERO || at == DIGITS)) return go(s, POINT);
    if ((c == 'e' || c == 'E') && may_end_number(at) && at != EXPONENT_DIGITS) {
        return go(s, EXPONENT);
    }
    if ((c == '+' || c == '-') && at == EXPONENT) return go(s, EXPONENT_SIGN);
    if (!may_end_number(at) || s->depth == 0) return AG_JSON_SCAN_BAD;
    s->state = AFTER_VALUE;
    return ag_is_json_space(c) ? AG_JSON_SCAN_MORE : after_value(s, c);
}

bool ag_json_scan_is_complete(const ag_json_scan *s) {
    return s->state == DONE || (s->depth == 0 && may_end_number(s->state));
}

ag_json_scan_result ag_json_scan_byte(ag_json_scan *s, char c) {
    if (s->state <= AFTER_VALUE && ag_is_json_space(c)) return AG_JSON_SCAN_MORE;
    switch (s->state) {
    case FIRST_VALUE:
        return c == ']' ? closes(s, c) : begins_value(s, c);
    case VALUE:
        return begins_value(s, c);
    case FIRST_KEY:
        if (c == '}') return closes(s, c);
        /* fall through */
    case KEY:
        s->is_key = true;
        return c == '"' ? go(s, STRING) : AG_JSON_SCAN_BAD;
    case COLON:
        return c == ':' ? go(s, VALUE) : AG_JSON_SCAN_BAD;
    case AFTER_VALUE:
        return after_value(s, c);
    case STRING:
        return in_string(s, c);
    case ESCAPE:
    case HEX:
        return in_escape(s, c);
    case LITERAL:
        return in_literal(s, c);
    case DONE:
        return AG_JSON_SCAN_BAD;
    default:
        return in_number(s, c);
    }
}

bool ag_is_json_value(const char *s, size_t n) {
    ag_json_scan scan = {0};
    for (size_t i = 0; i < n; i++) {
        const ag_json_scan_result r = ag_json_scan_byte(&scan, s[i]);
        if (r == AG_JSON_SCAN_MORE) continue;
        if (r == AG_JSON_SCAN_BAD && !ag_json_scan_is_complete(&scan)) return false;
        for (i += r == AG_JSON_SCAN_END; i < n; i++) {
            if (!ag_is_json_space(s[i])) return false;
        }
        return true;
    }
    return ag_json_scan_is_complete(&scan);
}
