/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded rows of real tokenizers. We may not copy the tokenizers' files: a test is skipped if its
 * file is not in the shared data directory. */
#include "tokenizer_rows.h"

#include <sys/stat.h>

static ag_tokenizer *shared(const char *name) {
    char path[1024];
    struct stat info;
    snprintf(path, sizeof path, AG_SHARED_DIR "/%s/tokenizer.json", name);
    if (stat(path, &info) != 0) {
        print_message("skipped: no %s\n", path);
        skip();
    }
    return rows_tokenizer(path);
}

/* Checks NAME.gguf.inp and NAME.gguf.out of tests/data. */
static void check_pairs(const char *tokenizer, const char *name) {
    ag_tokenizer *t = shared(tokenizer);
    char vocabulary[1024];
    snprintf(vocabulary, sizeof vocabulary, AG_ROWS_DIR "ggml-vocab-%s.gguf", name);
    assert_int_equal(rows_check_pairs(t, vocabulary), 46);
    ag_tokenizer_destroy(t);
}

static void matches_llama_3_rows(void **state) {
    (void)state;
    ag_tokenizer *t = shared("tokenizers/llama-3.2");
    json_t *rows = rows_load("tokenizer-llama3.json"), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        /* `decoded` belongs to the ids without BOS. */
        json_t *ids = json_object_get(row, "ids_no_special");
        rows_check_decode(t, ids, true, json_object_get(row, "decoded"));
        json_object_del(row, "decoded");
        rows_check(t, row);
    }
    json_decref(rows);
    ag_tokenizer_destroy(t);
}

static void matches_llama_3_pairs(void **state) {
    (void)state;
    check_pairs("tokenizers/llama-3.2", "llama-bpe");
}
static void matches_gpt_2_pairs(void **state) {
    (void)state;
    check_pairs("tokenizers/gpt2", "gpt-2");
}
static void matches_tinyllama_pairs(void **state) {
    (void)state;
    check_pairs("tokenizers/tinyllama", "llama-spm");
}
static void matches_qwen_pairs(void **state) {
    (void)state;
    check_pairs("tokenizers/qwen2.5", "qwen2");
}

static void check_multilingual(const char *tokenizer, const char *file) {
    ag_tokenizer *t = shared(tokenizer);
    json_t *inputs = rows_load("inputs.json"), *rows = rows_load(file), *input, *row;
    size_t i, k, n = 0;
    json_array_foreach(inputs, i, input) {
        const char *id = json_string_value(json_object_get(input, "id"));
        const json_t *text = json_object_get(input, "text");
        json_array_foreach(json_object_get(rows, "entries"), k, row) {
            if (strcmp(id, json_string_value(json_object_get(row, "id"))) != 0) continue;
            rows_check_encode(t, json_string_value(text), json_string_length(text),
                              AG_ENCODE_BOS | AG_ENCODE_PARSE_SPECIAL,
                              json_object_get(row, "input_ids"));
            n++;
        }
    }
    assert_int_equal(n, 83);
    json_decref(inputs);
    json_decref(rows);
    ag_tokenizer_destroy(t);
}

static void matches_qwen_in_many_languages(void **state) {
    (void)state;
    check_multilingual("tokenizers/qwen2.5", "qwen2_5_multilingual.json");
}
static void matches_tinyllama_in_many_languages(void **state) {
    (void)state;
    check_multilingual("tokenizers/tinyllama", "tinyllama_multilingual.json");
}

static void check_hub(const char *name) {
    char dir[64];
    snprintf(dir, sizeof dir, "tokenizers/%s", name);
    ag_tokenizer *t = shared(dir);
    json_t *file = rows_load("hub_tests.json"), *row;
    size_t i;
    assert_true(json_array_size(json_object_get(file, name)) >= 18);
    json_array_foreach(json_object_get(file, name), i, row) rows_check(t, row);
    json_decref(file);
    ag_tokenizer_destroy(t);
}

static void matches_gpt_2_hub_rows(void **state) {
    (void)state;
    check_hub("gpt2");
}
static void matches_llama_3_hub_rows(void **state) {
    (void)state;
    check_hub("llama-3.2");
}
static void matches_tinyllama_hub_rows(void **state) {
    (void)state;
    check_hub("tinyllama");
}

/* It has byte_fallback but no byte tokens: a run of unknown characters becomes one <unk>. */
static void matches_tinystories_with_unknown_characters(void **state) {
    (void)state;
    ag_tokenizer *t = shared("models/tinystories-656k");
    json_t *ids = json_pack("[i,i,i,i]", 1, 80, 0, 10);
    rows_check_encode(t, "\xED\x95\x9C\xEA\xB8\x80.", 7, AG_ENCODE_BOS, ids);
    json_decref(ids);
    ag_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_llama_3_rows),
        cmocka_unit_test(matches_llama_3_pairs),
        cmocka_unit_test(matches_gpt_2_pairs),
        cmocka_unit_test(matches_tinyllama_pairs),
        cmocka_unit_test(matches_qwen_pairs),
        cmocka_unit_test(matches_qwen_in_many_languages),
        cmocka_unit_test(matches_tinyllama_in_many_languages),
        cmocka_unit_test(matches_gpt_2_hub_rows),
        cmocka_unit_test(matches_llama_3_hub_rows),
        cmocka_unit_test(matches_tinyllama_hub_rows),
        cmocka_unit_test(matches_tinystories_with_unknown_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
