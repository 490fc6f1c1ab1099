/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a tokenizer with recorded rows of text and ids. */
#ifndef AG_TESTS_TOKENIZER_ROWS_H
#define AG_TESTS_TOKENIZER_ROWS_H

#include <antigravity/tokenizer.h>

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define AG_ROWS_DIR AG_SOURCE_DIR "/tests/data/tokenizers/"

static inline json_t *rows_load(const char *name) {
    char path[1024];
    json_error_t error;
    snprintf(path, sizeof path, AG_ROWS_DIR "%s", name);
    json_t *v = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!v) fail_msg("%s: %s", path, error.text);
    return v;
}

static inline ag_tokenizer *rows_tokenizer(const char *path) {
    ag_tokenizer *t;
    ag_error err;
    if (ag_tokenizer_load(path, &t, &err) != AG_OK) fail_msg("%s", err.msg);
    return t;
}

static inline void rows_check_encode(const ag_tokenizer *t, const char *text, size_t len,
                                     unsigned flags, const json_t *expected) {
    if (!expected) return;
    ag_ids ids = {0};
    ag_error err;
    if (ag_tokenizer_encode(t, text, len, flags, &ids, &err) != AG_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < json_array_size(expected) || i < ids.n; i++) {
        long long actual = i < ids.n ? ids.data[i] : -1,
                  expected_id = i < json_array_size(expected)
                                    ? json_integer_value(json_array_get(expected, i))
                                    : -1;
        if (actual != expected_id)
            fail_msg("\"%s\" flags %u: id %zu is %lld, not %lld", text, flags, i, actual,
                     expected_id);
    }
    ag_ids_free(&ids);
}

/* Decodes all ids at once, then one by one, where each piece must be whole characters. */
static inline void rows_check_decode(const ag_tokenizer *t, const json_t *list, bool keep,
                                     const json_t *expected) {
    if (!expected) return;
    size_t n = json_array_size(list);
    int32_t *ids = calloc(n + 1, sizeof *ids);
    ag_text whole = {0}, pieces = {0};
    ag_decoder *d;
    ag_error err;
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    if (ag_tokenizer_decode(t, ids, n, keep, &whole, &err) != AG_OK) fail_msg("%s", err.msg);
    if (whole.len != json_string_length(expected) ||
        memcmp(whole.data, json_string_value(expected), whole.len) != 0) {
        fail_msg("decoded \"%s\", not \"%s\"", whole.data, json_string_value(expected));
    }
    assert_int_equal(ag_decoder_create(t, keep, false, &d, &err), AG_OK);
    for (int round = 0; round < 2; round++) { /* flushing resets a decoder */
        pieces.len = 0;
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(ag_decoder_push(d, ids[i], &pieces, &err), AG_OK);
            if (!pieces.len) continue;
            json_t *valid = json_stringn(pieces.data, pieces.len); /* NULL unless it is UTF-8 */
            assert_non_null(valid);
            json_decref(valid);
        }
        assert_int_equal(ag_decoder_flush(d, &pieces, &err), AG_OK);
        assert_int_equal(pieces.len, whole.len);
        if (whole.len) assert_memory_equal(pieces.data, whole.data, whole.len);
    }
    ag_decoder_destroy(d);
    ag_text_free(&whole);
    ag_text_free(&pieces);
    free(ids);
}

/* Checks a row of tools/make_tokenizer_vectors.py. */
static inline void rows_check(const ag_tokenizer *t, const json_t *row) {
    const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "decode");
    if (text) {
        const char *s = json_string_value(text);
        size_t len = json_string_length(text);
        ids = json_object_get(row, "ids");
        rows_check_encode(t, s, len, AG_ENCODE_BOS | AG_ENCODE_PARSE_SPECIAL, ids);
        rows_check_encode(t, s, len, 0, json_object_get(row, "plain"));
        rows_check_encode(t, s, len, AG_ENCODE_PARSE_SPECIAL,
                          json_object_get(row, "ids_no_special"));
    }
    rows_check_decode(t, ids, true, json_object_get(row, "decoded"));
    rows_check_decode(t, ids, false, json_object_get(row, "skipped"));
}

/* Reads the whole file. The caller frees the result with free(). */
static inline char *rows_read_file(const char *path) {
    enum { MOST = 1 << 16 };
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("no %s", path);
    char *text = calloc(1, MOST);
    size_t n = fread(text, 1, MOST - 1, f);
    fclose(f);
    assert_true(n > 0 && n < MOST - 1);
    return text;
}

/* Checks VOCABULARY.inp, which has texts with a separator line after each, against VOCABULARY.out,
 * which has a line of ids for each text. Returns the number of texts. */
static inline int rows_check_pairs(const ag_tokenizer *t, const char *vocabulary) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char file[1100];
    snprintf(file, sizeof file, "%s.inp", vocabulary);
    char *texts = rows_read_file(file);
    snprintf(file, sizeof file, "%s.out", vocabulary);
    char *lines = rows_read_file(file), *line = lines, *text = texts, *end;
    int n = 0;
    while ((end = strstr(text, separator)) != NULL) {
        char *next = strchr(line, '\n');
        assert_non_null(next);
        *next = *end = '\0';
        json_t *ids = json_array();
        for (char *p = line, *stop;; p = stop) {
            long id = strtol(p, &stop, 10);
            if (stop == p) break;
            json_array_append_new(ids, json_integer(id));
        }
        rows_check_encode(t, text, (size_t)(end - text), AG_ENCODE_PARSE_SPECIAL, ids);
        rows_check_encode(t, text, (size_t)(end - text), 0, ids);
        json_decref(ids);
        text = end + sizeof separator - 1;
        line = next + 1;
        n++;
    }
    free(texts);
    free(lines);
    return n;
}

#endif
