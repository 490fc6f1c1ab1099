/* SPDX-License-Identifier: Apache-2.0 */
#include "json_out.h"

#include "../command.h"
#include "../terminal/output.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *json_add_fields(json_t *object, const json_field *fields, size_t n) {
    bool ok = object != NULL;
    /* Consumes every value, also after a failure. */
    for (size_t i = 0; i < n; i++)
        ok = json_object_set_new(object, fields[i].key, fields[i].value) == 0 && ok;
    if (ok) return object;
    json_decref(object);
    return NULL;
}

json_t *json_list_of(json_t *item) {
    json_t *list = json_array();
    if (json_array_append_new(list, item) == 0) return list;
    json_decref(list);
    return NULL;
}

void json_append(json_t **list, json_t *item) {
    if (json_array_append_new(*list, item) == 0) return;
    json_decref(*list);
    *list = NULL;
}

/* Returns the length of the UTF-8 character at s[0..n), 0 if it is invalid. */
static size_t character_length(const unsigned char *s, size_t n) {
    if (s[0] < 0x80) return 1;
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0; /* overlong */
    if (s[0] == 0xed && s[1] > 0x9f) return 0; /* surrogates */
    if (s[0] == 0xf0 && s[1] < 0x90) return 0;
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0; /* past U+10FFFF */
    return len;
}

json_t *json_text(const char *text, size_t len) {
    static const char replacement[] = "\xef\xbf\xbd";
    json_t *value = json_stringn(text, len);
    if (value) return value;
    char *clean = malloc(len * 3 + 1);
    if (!clean) return NULL;
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        size_t k = character_length((const unsigned char *)text + i, len - i);
        memcpy(clean + n, k ? text + i : replacement, k ? k : 3);
        n += k ? k : 3;
        i += k ? k : 1;
    }
    value = json_stringn(clean, n);
    free(clean);
    return value;
}

json_t *json_ids(const int32_t *ids, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) json_append(&list, json_integer(ids[i]));
    return list;
}

json_t *json_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

json_t *json_float(float v) {
    char digits[32];
    if (!isfinite(v)) return json_null();
    snprintf(digits, sizeof digits, "%.7g", (double)v);
    return json_real(strtod(digits, NULL));
}

static int write_piece(const char *piece, size_t len, void *user) {
    (void)user;
    return fwrite(piece, 1, len, stdout) == len ? 0 : -1;
}

int json_print(json_t *value) {
    if (!value) return complain_no_memory();
    /* output_finish() reports the error flag of stdout. */
    int failed = json_dump_callback(value, write_piece, NULL, JSON_REAL_PRECISION(15));
    json_decref(value);
    if (failed && !ferror(stdout)) return complain_no_memory();
    output_write("\n", 1);
    return EXIT_DONE;
}
