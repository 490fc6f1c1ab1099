/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the tokenizer with recordings of the tokenizers library: the bundled model, and small
 * tokenizers with every kind of component. */
#include "tokenizer_rows.h"

#include <antigravity/alloc.h>
#include <antigravity/interrupt.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define DEMO AG_SOURCE_DIR "/models/demo"

static void bundled_model_matches_recorded_ids(void **state) {
    (void)state;
    ag_tokenizer *t = rows_tokenizer(DEMO);
    json_t *rows = rows_load("demo.json"), *row;
    size_t i;
    assert_true(json_array_size(rows) > 60);
    json_array_foreach(rows, i, row) rows_check(t, row);
    json_decref(rows);
    ag_tokenizer_destroy(t);
}

/* The tokenizer of a case: a trained model with some options changed, and the other components. */
static ag_tokenizer *case_tokenizer(const json_t *file, const json_t *c) {
    json_t *spec = json_deep_copy(json_object_get(c, "tokenizer"));
    const char *name = json_string_value(json_object_get(c, "model"));
    json_t *model = json_deep_copy(json_object_get(json_object_get(file, "models"), name));
    json_object_update(model, json_object_get(c, "changes"));
    json_object_set_new(spec, "model", model);
    char *text = json_dumps(spec, JSON_COMPACT);
    ag_tokenizer *t;
    ag_error err;
    if (ag_tokenizer_parse(text, strlen(text), "case", &t, &err) != AG_OK) fail_msg("%s", err.msg);
    free(text);
    json_decref(spec);
    return t;
}

static void components_match_recorded_ids(void **state) {
    (void)state;
    json_t *file = rows_load("cases.json"), *c, *row;
    json_t *cases = json_object_get(file, "cases");
    size_t i, k;
    assert_true(json_array_size(cases) > 37);
    json_array_foreach(cases, i, c) {
        ag_tokenizer *t = case_tokenizer(file, c);
        print_message("case %zu\n", i);
        json_array_foreach(json_object_get(c, "rows"), k, row) rows_check(t, row);
        ag_tokenizer_destroy(t);
    }
    json_decref(file);
}

static void looks_up_ids_and_spellings(void **state) {
    (void)state;
    ag_tokenizer *t = rows_tokenizer(DEMO "/tokenizer.json");
    size_t len;
    assert_int_equal(ag_tokenizer_vocab_size(t), 4096);
    int32_t the = ag_tokenizer_id(t, "\xC4\xA0the", 5);
    assert_true(the >= 0);
    assert_memory_equal(ag_tokenizer_token(t, the, &len), "\xC4\xA0the", 5);
    assert_int_equal(len, 5);
    assert_false(ag_tokenizer_is_special(t, the));
    assert_int_equal(ag_tokenizer_id(t, "<|begin_of_text|>", 17), 4090);
    assert_true(ag_tokenizer_is_special(t, 4090));
    assert_int_equal(ag_tokenizer_id(t, "\xC4\xA0the", 1), -1);
    assert_int_equal(ag_tokenizer_id(t, "no such token", 13), -1);
    const int32_t none[] = {-1, 4096, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        assert_null(ag_tokenizer_token(t, none[i], &len));
        assert_false(ag_tokenizer_is_special(t, none[i]));
    }
    ag_tokenizer_destroy(t);
    ag_tokenizer_destroy(NULL);
}

static void encode_appends_and_changes_nothing_on_failure(void **state) {
    (void)state;
    ag_tokenizer *t = rows_tokenizer(DEMO);
    ag_ids ids = {0};
    ag_error err;
    assert_int_equal(ag_tokenizer_encode(t, "Hi", 2, AG_ENCODE_BOS, &ids, &err), AG_OK);
    size_t n = ids.n;
    assert_int_equal(ids.data[0], 4090);
    assert_int_equal(ag_tokenizer_encode(t, "Hi", 2, 0, &ids, &err), AG_OK);
    assert_int_equal(ids.n, 2 * n - 1);
    assert_int_equal(ag_tokenizer_encode(t, "ab\xC3(", 4, AG_ENCODE_BOS, &ids, &err), AG_FORMAT);
    assert_string_equal(err.msg, "text is not UTF-8: byte 0xc3 at offset 2 of 4");
    assert_int_equal(ids.n, 2 * n - 1);
    assert_int_equal(ag_tokenizer_encode(t, "", 0, 0, &ids, NULL), AG_OK);
    assert_int_equal(ids.n, 2 * n - 1);
    ag_ids_free(&ids);
    assert_null(ids.data);
    ag_tokenizer_destroy(t);
}

/* UTF-8 is checked in parts of 1 MiB. */
static void checks_utf8_across_parts(void **state) {
    (void)state;
    enum { PART = 1 << 20, LEN = PART + 16 };
    ag_tokenizer *t = rows_tokenizer(DEMO);
    ag_ids ids = {0};
    ag_error err;
    char *text = malloc(LEN);
    assert_non_null(text);
    memset(text, ' ', LEN);
    memcpy(text + PART - 1, "\xC3\xA9", 2);
    assert_int_equal(ag_tokenizer_encode(t, text, LEN, 0, &ids, &err), AG_OK);
    text[PART] = '(';
    assert_int_equal(ag_tokenizer_encode(t, text, LEN, 0, &ids, &err), AG_FORMAT);
    assert_string_equal(err.msg, "text is not UTF-8: byte 0xc3 at offset 1048575 of 1048592");
    free(text);
    ag_ids_free(&ids);
    ag_tokenizer_destroy(t);
}

static void rejects_invalid_utf8_at_any_offset(void **state) {
    (void)state;
    static const char *const bad[] = {"\x80",         "\xC0\x80",         "\xE0\x80\x80",
                                      "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8",
                                      "\xE2\x82",     "\xF0\x9F\x98"};
    ag_tokenizer *t = rows_tokenizer(DEMO);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (size_t before = 0; before < 20; before++) {
            char text[32];
            ag_ids ids = {0};
            ag_error err;
            memset(text, 'a', before);
            memcpy(text + before, bad[i], strlen(bad[i]));
            char position[32];
            snprintf(position, sizeof position, "at offset %zu of", before);
            assert_int_equal(ag_tokenizer_encode(t, text, before + strlen(bad[i]), 0, &ids, &err),
                             AG_FORMAT);
            assert_non_null(strstr(err.msg, position));
            ag_ids_free(&ids);
        }
    }
    ag_tokenizer_destroy(t);
}

static void decode_rejects_unknown_ids(void **state) {
    (void)state;
    ag_tokenizer *t = rows_tokenizer(DEMO);
    ag_text out = {0};
    ag_error err;
    ag_decoder *d;
    assert_int_equal(ag_tokenizer_decode(t, (int32_t[]){5}, 1, true, &out, &err), AG_OK);
    size_t len = out.len;
    assert_int_equal(ag_tokenizer_decode(t, (int32_t[]){5, 4096, 7}, 3, true, &out, &err),
                     AG_INVALID);
    assert_string_equal(err.msg, "id 4096 is not in the vocabulary of 4096");
    assert_int_equal(out.len, len);
    assert_int_equal(ag_decoder_create(t, true, false, &d, &err), AG_OK);
    assert_int_equal(ag_decoder_push(d, -1, &out, &err), AG_INVALID);
    assert_int_equal(out.len, len);
    ag_decoder_destroy(d);
    ag_decoder_destroy(NULL);
    ag_text_free(&out);
    ag_tokenizer_destroy(t);
}

static void continuing_decoder_keeps_the_leading_space(void **state) {
    (void)state;
    static const char json[] =
        "{\"model\":{\"vocab\":{\"\\u2581a\":0,\"<0xE2>\":1,\"<0x82>\":2,\"<0xAC>\":3},\"merges\":["
        "]},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
        "\"String\":"
        "\"\\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":"
        "\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}";
    ag_tokenizer *t;
    ag_error err;
    if (ag_tokenizer_parse(json, sizeof json - 1, "x", &t, &err) != AG_OK) fail_msg("%s", err.msg);
    for (int continues = 0; continues < 2; continues++) {
        ag_decoder *d;
        ag_text out = {0};
        assert_int_equal(ag_decoder_create(t, true, continues, &d, &err), AG_OK);
        for (int32_t id = 0; id < 4; id++) ag_decoder_push(d, id, &out, &err);
        assert_string_equal(out.data,
                            continues ? " a" : "a"); /* the run of bytes is not complete */
        ag_decoder_push(d, 0, &out, &err);
        assert_string_equal(out.data, continues ? " a\xE2\x82\xAC a" : "a\xE2\x82\xAC a");
        ag_decoder_push(d, 1, &out, &err);
        ag_decoder_flush(d, &out, &err);
        assert_string_equal(out.data + out.len - 5, " a\xEF\xBF\xBD");
        ag_decoder_destroy(d);
        ag_text_free(&out);
    }
    ag_tokenizer_destroy(t);
}

static void decoder_push_does_not_allocate(void **state) {
    (void)state;
    ag_tokenizer *t = rows_tokenizer(DEMO);
    ag_decoder *d;
    ag_text out = {0};
    assert_int_equal(ag_decoder_create(t, true, false, &d, NULL), AG_OK);
    ag_decoder_push(d, 300, &out, NULL);
    size_t count = ag_allocation_count();
    for (int32_t id = 0; id < 4096; id++) {
        out.len = 0;
        assert_int_equal(ag_decoder_push(d, id, &out, NULL), AG_OK);
    }
    assert_true(ag_allocation_count() - count <= 4); /* only `out` may grow */
    ag_decoder_destroy(d);
    ag_text_free(&out);
    ag_tokenizer_destroy(t);
}

/* A megabyte of mixed text round-trips, and no single word takes quadratic time. The limits suit
 * sanitizers and emulators; a plain build needs about a twentieth. */
static void round_trips_a_megabyte_in_linear_time(void **state) {
    (void)state;
    static const char *const units[] = {"The old king said: \"Go!\"\r\n  ",
                                        "\xED\x95\x9C\xEA\xB8\x80 ",
                                        "a",
                                        " ",
                                        "ab",
                                        "\xF0\x9F\x98\x80",
                                        "\xCC\x81\xCC\x96",
                                        "1"};
    ag_tokenizer *t = rows_tokenizer(DEMO);
    enum { SIZE = 1000000 };
    char *text = malloc(SIZE + 64);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t n = 0, step = strlen(units[u]);
        for (; n < SIZE; n += step) memcpy(text + n, units[u], step);
        ag_ids ids = {0};
        ag_text out = {0};
        ag_error err;
        clock_t start = clock();
        if (ag_tokenizer_encode(t, text, n, 0, &ids, &err) != AG_OK) fail_msg("%s", err.msg);
        assert_int_equal(ag_tokenizer_decode(t, ids.data, ids.n, true, &out, &err), AG_OK);
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
        assert_int_equal(out.len, n);
        assert_memory_equal(out.data, text, n);
        ag_ids_free(&ids);
        ag_text_free(&out);
    }
    free(text);
    ag_tokenizer_destroy(t);
}

static void *encode_all_rows(void *arg) {
    const ag_tokenizer *t = arg;
    json_t *rows = rows_load("demo.json"), *row;
    size_t i;
    for (int round = 0; round < 20; round++) {
        json_array_foreach(rows, i, row) rows_check(t, row);
    }
    json_decref(rows);
    return NULL;
}

static void encodes_in_several_threads(void **state) {
    (void)state;
    ag_tokenizer *t = rows_tokenizer(DEMO);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, encode_all_rows, t), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    ag_tokenizer_destroy(t);
}

static void write_to(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Each file of the list has priority over the files before it. */
static void finds_chat_templates_in_each_file(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
        ag_status status;
        const char *expected; /* the template, or a part of the message */
    } files[] = {
        {"tokenizer_config.json", "{\"chat_template\":null}", AG_NOT_FOUND, "no chat template"},
        {"tokenizer_config.json", "{\"chat_template\":\"one\"}", AG_OK, "one"},
        {"tokenizer_config.json",
         "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"no\"},"
         "{\"name\":\"default\",\"template\":\"two\"}]}",
         AG_OK, "two"},
        {"tokenizer_config.json", "{", AG_FORMAT, "tokenizer_config.json"},
        {"chat_template.json", "{\"chat_template\":\"three\"}", AG_OK, "three"},
        {"chat_template.jinja", "{{ four }}", AG_OK, "{{ four }}"},
    };
    char dir[] = "/tmp/ag-template-XXXXXX", path[96];
    ag_error err;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ag_text text = {0};
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        write_to(path, files[i].text);
        assert_int_equal(ag_chat_template_load(dir, &text, &err), files[i].status);
        if (files[i].status == AG_OK) assert_string_equal(text.data, files[i].expected);
        else assert_non_null(strstr(err.msg, files[i].expected));
        ag_text_free(&text);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        unlink(path);
    }
    rmdir(dir);
    ag_text none = {0};
    assert_int_equal(ag_chat_template_load(dir, &none, &err), AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, "No such file or directory"));
    assert_null(none.data);
}

static bool count_down(void *user) { return --*(int *)user < 0; }

/* Every kind of text calls the callback more than 20 times. */
static void encode_stops_when_interrupted(void **state) {
    (void)state;
    static const char *const units[] = {"word and ", "abcdefgh",     "    ",      "<|eot_id|>",
                                        "1234",      "\xEA\xB0\x80", "e\xCC\x81", "\n"};
    enum { BYTES = 1 << 20, CALLS = 20 };
    ag_tokenizer *t = rows_tokenizer(DEMO);
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        const size_t n = strlen(units[u]);
        for (size_t i = 0; i < BYTES / n * n; i++) text[i] = units[u][i % n];
        for (int calls = 0; calls <= CALLS; calls += CALLS) {
            ag_error err;
            ag_ids ids = {0};
            int remaining = calls;
            ag_set_thread_interrupt(count_down, &remaining);
            const ag_status st =
                ag_tokenizer_encode(t, text, BYTES / n * n, AG_ENCODE_PARSE_SPECIAL, &ids, &err);
            ag_set_thread_interrupt(NULL, NULL);
            if (st != AG_CANCELLED)
                fail_msg("'%s' after %d: %s", units[u], calls, ag_status_name(st));
            assert_int_equal(ids.n, 0);
            ag_ids_free(&ids);
        }
    }
    free(text);
    ag_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bundled_model_matches_recorded_ids),
        cmocka_unit_test(components_match_recorded_ids),
        cmocka_unit_test(looks_up_ids_and_spellings),
        cmocka_unit_test(encode_appends_and_changes_nothing_on_failure),
        cmocka_unit_test(checks_utf8_across_parts),
        cmocka_unit_test(rejects_invalid_utf8_at_any_offset),
        cmocka_unit_test(decode_rejects_unknown_ids),
        cmocka_unit_test(continuing_decoder_keeps_the_leading_space),
        cmocka_unit_test(decoder_push_does_not_allocate),
        cmocka_unit_test(round_trips_a_megabyte_in_linear_time),
        cmocka_unit_test(encodes_in_several_threads),
        cmocka_unit_test(finds_chat_templates_in_each_file),
        cmocka_unit_test(encode_stops_when_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
