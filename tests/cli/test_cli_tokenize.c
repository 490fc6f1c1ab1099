/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity tokenize, with and without --decode. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static cli_result tokenize(const void *input, size_t n, const char *const *args) {
    return cli_run(&(cli_setup){.args = args, .input = input, .n_input = n});
}

static void prints_ids_on_one_line(void **state) {
    (void)state;
    cli_result r = CLI("tokenize", "-p", "Once upon a time", "-q");
    assert_code(&r, 0);
    assert_string_equal(r.out, "4090 790 650 258 469\n");
    assert_string_equal(r.err, "");
    cli_free(&r);
    r = CLI("tokenize", "-m", DEMO, "-p", "Once upon a time", "--no-bos");
    assert_string_equal(r.out, "790 650 258 469\n");
    cli_free(&r);
    r = CLI("tokenize", "-m", DEMO "/tokenizer.json", "-p", "Once upon a time", "--no-bos");
    assert_string_equal(r.out, "790 650 258 469\n");
    cli_free(&r);
    r = CLI("tokenize", "-m", DEMO, "-p", "", "--no-bos");
    assert_code(&r, 0);
    assert_string_equal(r.out, "\n");
    cli_free(&r);
}

static void parses_special_tokens_with_option(void **state) {
    (void)state;
    cli_result r = CLI("tokenize", "-q", "-p", "<|eot_id|>", "--parse-special", "--no-bos");
    assert_string_equal(r.out, "4094\n");
    cli_free(&r);
    r = CLI("tokenize", "-q", "-p", "<|eot_id|>", "--no-bos");
    assert_does_not_say(r.out, "4094");
    cli_free(&r);
}

static void json_has_ids_and_pieces(void **state) {
    (void)state;
    cli_result r = CLI("tokenize", "-q", "-p", "Once upon", "--json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    json_t *ids = json_object_get(root, "ids"), *pieces = json_object_get(root, "pieces");
    assert_int_equal(json_array_size(ids), 3);
    assert_int_equal(json_array_size(pieces), 3);
    assert_int_equal(json_integer_value(json_array_get(ids, 2)), 650);
    assert_string_equal(json_string_value(json_array_get(pieces, 0)), "<|begin_of_text|>");
    assert_string_equal(json_string_value(json_array_get(pieces, 1)), "Once");
    json_decref(root);
    cli_free(&r);
}

/* Decoding restores every byte, including the final newline and NUL. */
static void decode_restores_encoded_text(void **state) {
    (void)state;
    static const char text[] = "K\xc3\xb6ln \xe2\x80\x94 a\0b \xe2\x98\x95\n\n";
    static const char *const formats[] = {NULL, "--json"};
    for (size_t i = 0; i < 2; i++) {
        cli_result ids = tokenize(text, sizeof text - 1, CLI_ARGS("tokenize", "-q", formats[i]));
        assert_code(&ids, 0);
        cli_result back =
            tokenize(ids.out, ids.n_out, CLI_ARGS("tokenize", "-q", "--decode", "--no-bos"));
        assert_code(&back, 0);
        assert_int_equal(back.n_out, sizeof text - 1);
        assert_memory_equal(back.out, text, sizeof text - 1);
        cli_free(&back);
        cli_free(&ids);
    }
}

static void decode_keeps_special_tokens_by_default(void **state) {
    (void)state;
    cli_result r = CLI("tokenize", "-q", "--decode", "-p", "4090,790, 650\n4094");
    assert_string_equal(r.out, "<|begin_of_text|>Once upon<|eot_id|>");
    cli_free(&r);
    r = CLI("tokenize", "-q", "--decode", "-p", "4090 790 650 4094", "--skip-special");
    assert_string_equal(r.out, "Once upon");
    cli_free(&r);
    r = CLI("tokenize", "-q", "--decode", "--prompt-ids", "4090,790,650", "--no-bos");
    assert_code(&r, 0);
    assert_string_equal(r.out, "Once upon");
    cli_free(&r);
    r = CLI("tokenize", "-q", "--decode", "-p", "[790, 650]", "--json");
    json_t *root = cli_json(&r);
    assert_string_equal(json_string_value(json_object_get(root, "text")), "Once upon");
    json_decref(root);
    cli_free(&r);
}

static void rejects_bad_ids(void **state) {
    (void)state;
    static const struct {
        const char *input, *message;
    } cases[] = {
        {"1 x", "'x' is not a whole number"},
        {"-1", "'-1' is not between 0 and"},
        {"99999", "99999"},
        {"{\"ids\": [1", "line 1"},
        {"{\"tokens\": [1]}", "has no list \"ids\""},
        {"{\"ids\": [1, 2.5]}", "item 1 of \"ids\" is not a whole number"},
        {"[-5]", "'-5' is not between 0 and"},
        {"[[1]]", "is not a whole number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_result r = CLI("tokenize", "-q", "--decode", "-p", cases[i].input);
        assert_refused(&r, 1, cases[i].message);
        cli_free(&r);
    }
}

static void rejects_bad_texts_and_tokenizers(void **state) {
    (void)state;
    cli_result r = tokenize("ab\xc3(", 4, CLI_ARGS("tokenize", "-q"));
    assert_refused(&r, 1, "2");
    cli_free(&r);
    r = CLI("tokenize", "-m", TINY, "-p", "x");
    assert_refused(&r, 1, "tokenizer.json");
    cli_free(&r);
    r = CLI("tokenize", "-m", DEMO "/config.json", "-p", "x");
    assert_refused(&r, 1, "config.json");
    cli_free(&r);
}

/* The failure comes after some ids: a sanitizer would report a leak. */
static void rejects_text_that_cannot_be_encoded(void **state) {
    (void)state;
    static const char tokenizer[] =
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"<s>\":0,\"a\":1},\"merges\":"
        "[]},"
        "\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true}],"
        "\"post_processor\":{\"type\":\"TemplateProcessing\","
        "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]}}}}";
    char dir[64];
    make_directory(dir);
    write_file(dir, "tokenizer.json", tokenizer, strlen(tokenizer));
    cli_result r = CLI("tokenize", "-m", dir, "a");
    assert_code(&r, 0);
    assert_string_equal(r.out, "0 1\n");
    cli_free(&r);
    r = CLI("tokenize", "-m", dir, "ab");
    assert_refused(&r, 1, "U+0062 is not in the vocabulary");
    cli_free(&r);
    remove_directory(dir);
}

static void gguf_file_and_directory_give_equal_ids(void **state) {
    (void)state;
    static const char text[] = "The old king said: \"It's 1234!\" <|eot_id|>";
    char dir[64], path[96];
    make_directory(dir);
    snprintf(path, sizeof path, "%s/demo.gguf", dir);
    cli_result r = CLI("quantize", DEMO, path, "--type", "q8_0");
    assert_code(&r, 0);
    cli_free(&r);
    r = CLI("tokenize", "-m", DEMO, "-p", text, "--parse-special");
    cli_result same = CLI("tokenize", "-m", path, "-p", text, "--parse-special");
    assert_code(&same, 0);
    assert_string_equal(same.out, r.out);
    cli_free(&same);
    cli_free(&r);
    remove_directory(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_ids_on_one_line),
        cmocka_unit_test(parses_special_tokens_with_option),
        cmocka_unit_test(json_has_ids_and_pieces),
        cmocka_unit_test(decode_restores_encoded_text),
        cmocka_unit_test(decode_keeps_special_tokens_by_default),
        cmocka_unit_test(rejects_bad_ids),
        cmocka_unit_test(rejects_bad_texts_and_tokenizers),
        cmocka_unit_test(rejects_text_that_cannot_be_encoded),
        cmocka_unit_test(gguf_file_and_directory_give_equal_ids),
    };
    return cmocka_run_group_tests_name("cli tokenize", tests, NULL, NULL);
}
