/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of prompts with a suffix, with the special tokens of several families of models. */
#include "protocol_bench.h"

#include "../../programs/antigravity/serve/job/infill.h"
#include "../../programs/antigravity/serve/threads/account.h"

#include <string.h>

/* The ids of "a" to "d", "<" and newline are 0 to 5; special tokens follow. */
#define TOKENIZER(...)                                                                       \
    "{'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 1, 'c': 2, 'd': 3, '<': 4, '\\n': 5}," \
    " 'merges': []}, 'added_tokens': [" __VA_ARGS__ "]}"
#define MARK(id, text) "{'id': " #id ", 'content': '" text "', 'special': true}"
#define QWEN                                                                    \
    TOKENIZER(MARK(6, "<|fim_prefix|>") "," MARK(7, "<|fim_middle|>") "," MARK( \
        8, "<|fim_suffix|>") "," MARK(9, "<|file_sep|>") "," MARK(10, "<|endoftext|>"))

static ag_tokenizer *tokenizer_of(const char *json) {
    ag_error err;
    ag_tokenizer *t;
    json_t *value = json_of(json);
    char *text = json_dumps(value, 0);
    if (ag_tokenizer_parse(text, strlen(text), "test", &t, &err) != AG_OK) fail_msg("%s", err.msg);
    account_free(text);
    json_decref(value);
    return t;
}

/* Checks the prompt of a request. expected: the ids, or NULL if it is rejected. */
static void check(const char *tokenizer, const char *before, const char *suffix, const char *files,
                  const char *expected) {
    ag_tokenizer *t = tokenizer_of(tokenizer);
    serve_request r;
    serve_error e = {.status = 0};
    ag_ids ids = {0};
    json_t *prompt = json_of(before);
    serve_request_init(&r);
    r.suffix = account_strdup(suffix);
    r.files = files ? json_of(files) : NULL;
    const bool ok = infill_encode(t, prompt, &r, &ids, &e);
    assert_int_equal(e.status, expected ? 0 : 400);
    assert_int_equal(ok, expected != NULL);
    char text[200] = "";
    for (size_t i = 0; i < ids.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? " " : "",
                 (int)ids.data[i]);
    if (expected) assert_string_equal(text, expected);
    json_decref(prompt);
    serve_request_free(&r);
    ag_ids_free(&ids);
    ag_tokenizer_destroy(t);
}

static void encodes_a_gap_with_the_models_tokens(void **state) {
    (void)state;
    check(QWEN, "'ab'", "c", NULL, "6 0 1 8 2 7");
    check(QWEN, "''", "", NULL, "6 8 7");
    check(
        TOKENIZER(MARK(6, "<fim_prefix>") "," MARK(7, "<fim_suffix>") "," MARK(8, "<fim_middle>")),
        "'ab'", "c", NULL, "6 0 1 7 2 8");
    /* Some of a family's tokens are not enough. */
    check(TOKENIZER(MARK(6, "<fim_prefix>") "," MARK(7, "<fim_suffix>")), "'a'", "b", NULL, NULL);
    check(QWEN, "[0, 1]", "c", NULL, NULL);
}

static void puts_other_files_before_the_gap(void **state) {
    (void)state;
    check(QWEN, "'a'", "b", "[{'filename': 'cd', 'text': 'dd'}, {'text': 'c'}]",
          "9 2 3 5 3 3 9 5 2 6 0 8 1 7");
}

/* A special token in a file is text. */
static void does_not_parse_special_tokens_in_texts(void **state) {
    (void)state;
    ag_tokenizer *t = tokenizer_of(QWEN);
    ag_ids ids = {0};
    serve_request r;
    serve_error e;
    json_t *prompt = json_of("'a<|fim_middle|>b'");
    serve_request_init(&r);
    r.suffix = account_strdup("<|fim_suffix|>");
    r.files = json_of("[{'filename': '<|file_sep|>', 'text': '<|fim_prefix|>'}]");
    assert_true(infill_encode(t, prompt, &r, &ids, &e));
    size_t n_marks = 0;
    for (size_t i = 0; i < ids.n; i++) n_marks += ids.data[i] >= 6;
    assert_int_equal(n_marks, 4);
    int32_t stops[INFILL_STOPS];
    assert_int_equal(infill_stop_ids(t, stops), 2);
    assert_int_equal(stops[0], 10);
    assert_int_equal(stops[1], 9);
    json_decref(prompt);
    serve_request_free(&r);
    ag_ids_free(&ids);
    ag_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_a_gap_with_the_models_tokens),
        cmocka_unit_test(puts_other_files_before_the_gap),
        cmocka_unit_test(does_not_parse_special_tokens_in_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
