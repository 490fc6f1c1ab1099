/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer in a GGUF file gives the same ids as the tokenizer.json that it was made from. */
#include "support/tiny_model.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static char dir[256], path[300];

static const char *const texts[] = {
    "Once upon a time there was a fox, who'd seen 12345 winters.",
    "  two  blanks\n\nand lines\t\ttabs ",
    "na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\xa6\x8a \xce\xb1\xce\xb2",
    "the then there in an other",
    "<s>special</s> <|begin_of_text|>",
    "",
};

static void assert_ok(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static ag_tokenizer *load(const char *from) {
    ag_tokenizer *t;
    ag_error err;
    assert_ok(ag_tokenizer_load(from, &t, &err), &err);
    return t;
}

/* Compares the ids of every text, and their decoded text, between the model and its GGUF file. */
static void expect_the_same(const char *model) {
    ag_error err;
    remove(path);
    assert_ok(ag_quantize(model, path, &(ag_quantize_params){.type = "f32"}, NULL, &err), &err);
    ag_tokenizer *a = load(model), *b = load(path);
    const unsigned flags[] = {0, AG_ENCODE_BOS, AG_ENCODE_BOS | AG_ENCODE_PARSE_SPECIAL};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (size_t w = 0; w < 3; w++) {
            ag_ids x = {0}, y = {0};
            ag_text s = {0}, t = {0};
            assert_ok(ag_tokenizer_encode(a, texts[i], strlen(texts[i]), flags[w], &x, &err), &err);
            assert_ok(ag_tokenizer_encode(b, texts[i], strlen(texts[i]), flags[w], &y, &err), &err);
            assert_int_equal(x.n, y.n);
            if (x.n) assert_memory_equal(x.data, y.data, x.n * sizeof *x.data);
            assert_ok(ag_tokenizer_decode(a, x.data, x.n, true, &s, &err), &err);
            assert_ok(ag_tokenizer_decode(b, y.data, y.n, true, &t, &err), &err);
            assert_int_equal(s.len, t.len);
            if (s.len) assert_memory_equal(s.data, t.data, s.len);
            ag_ids_free(&x);
            ag_ids_free(&y);
            ag_text_free(&s);
            ag_text_free(&t);
        }
    }
    ag_tokenizer_destroy(a);
    ag_tokenizer_destroy(b);
}

static void keeps_ids_of_byte_level_bpe(void **state) {
    (void)state;
    expect_the_same(AG_SOURCE_DIR "/models/demo");
}

/* ---- byte fallback ---- */

static void add(json_t *vocab, const char *token) {
    if (json_object_get(vocab, token)) return;
    json_object_set_new(vocab, token, json_integer((json_int_t)json_object_size(vocab)));
}

#define SPACE "\xe2\x96\x81"
static const char *const merges[][2] = {
    {SPACE, "t"}, {"h", "e"},         {SPACE "t", "he"}, {"i", "n"},    {"a", "n"}, {"e", "r"},
    {SPACE, "a"}, {SPACE "the", "n"}, {SPACE "a", "n"},  {SPACE, "an"}, {"o", "t"}, {"ot", "he"}};

/* all: false omits the last merge, although its two tokens still form a token. */
static json_t *byte_merges(bool all) {
    json_t *list = json_array();
    for (size_t i = 0; i + !all < sizeof merges / sizeof merges[0]; i++) {
        json_array_append_new(list, json_pack("[s, s]", merges[i][0], merges[i][1]));
    }
    return list;
}

static json_t *byte_vocabulary(void) {
    json_t *vocab = json_object();
    const char *const first[] = {"<unk>", "<s>", "</s>"};
    char name[16];
    for (int i = 0; i < 3; i++) add(vocab, first[i]);
    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "<0x%02X>", i);
        add(vocab, name);
    }
    add(vocab, SPACE);
    for (char c = 'a'; c <= 'x'; c++) add(vocab, (char[]){c, '\0'});
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
        snprintf(name, sizeof name, "%s%s", merges[i][0], merges[i][1]);
        add(vocab, name);
    }
    return vocab;
}

/* Replaces the tiny model's tokenizer. */
static void write_tokenizer(json_t *tokenizer) {
    char file[300];
    snprintf(file, sizeof file, "%s/tokenizer.json", dir);
    assert_non_null(tokenizer);
    assert_int_equal(json_dump_file(tokenizer, file, 0), 0);
    json_decref(tokenizer);
}

static json_t *special(const char *content, int id) {
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", content,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

static void write_byte_fallback(bool all_merges) {
    write_tokenizer(json_pack(
        "{s:[o, o, o], s:{s:s, s:[{s:s, s:s}, {s:s, s:{s:s}, s:s}]}, s:n, s:{s:s, s:[{s:{s:s, "
        "s:i}}, "
        "{s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], s:[s]}}}, s:{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, "
        "{s:s}, {s:s, s:s, s:i, s:i}]}, s:{s:s, s:s, s:b, s:b, s:o, s:o}}",
        "added_tokens", special("<unk>", 0), special("<s>", 1), special("</s>", 2), "normalizer",
        "type", "Sequence", "normalizers", "type", "Prepend", "prepend", SPACE, "type", "Replace",
        "pattern", "String", " ", "content", SPACE, "pre_tokenizer", "post_processor", "type",
        "TemplateProcessing", "single", "SpecialToken", "id", "<s>", "type_id", 0, "Sequence", "id",
        "A", "type_id", 0, "pair", "special_tokens", "<s>", "id", "<s>", "ids", 1, "tokens", "<s>",
        "decoder", "type", "Sequence", "decoders", "type", "Replace", "pattern", "String", SPACE,
        "content", " ", "type", "ByteFallback", "type", "Fuse", "type", "Strip", "content", " ",
        "start", 1, "stop", 0, "model", "type", "BPE", "unk_token", "<unk>", "fuse_unk", 1,
        "byte_fallback", 1, "vocab", byte_vocabulary(), "merges", byte_merges(all_merges)));
}

static void keeps_ids_of_byte_fallback(void **state) {
    (void)state;
    write_byte_fallback(true);
    expect_the_same(dir);
}

/* With scores, the two tokens would be merged. */
static void rejects_tokens_without_a_merge(void **state) {
    (void)state;
    ag_error err;
    write_byte_fallback(false);
    remove(path);
    assert_int_equal(ag_quantize(dir, path, &(ag_quantize_params){.type = "f32"}, NULL, &err),
                     AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "\"ot he\" has no merge"));
}

/* ---- names of patterns ---- */

static void write_pattern(const char *pattern) {
    json_error_t error;
    json_t *root = json_load_file(AG_SOURCE_DIR "/models/demo/tokenizer.json", 0, &error);
    json_t *split =
        json_array_get(json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers"), 0);
    assert_non_null(split);
    json_object_set_new(json_object_get(split, "pattern"), "Regex", json_string(pattern));
    write_tokenizer(root);
}

static void rejects_patterns_without_a_name(void **state) {
    (void)state;
    ag_error err;
    ag_quantize_params params = {.type = "f32"};
    write_pattern("\\p{L}+|[^\\p{L}]");
    remove(path);
    /* The demo's vocabulary is larger than the tiny model's, but the pattern is checked first. */
    assert_int_equal(ag_quantize(dir, path, &params, NULL, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "choose one with --pre NAME"));
    params.pre = "gpt-3";
    assert_int_equal(ag_quantize(dir, path, &params, NULL, &err), AG_INVALID);
    params.pre = "gpt-2";
    assert_int_equal(ag_quantize(dir, path, &params, NULL, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "the model has 300"));
    assert_int_equal(access(path, F_OK), -1);
}

static void writes_no_tokenizer_if_there_is_none(void **state) {
    (void)state;
    char file[300];
    ag_error err;
    ag_tokenizer *t;
    snprintf(file, sizeof file, "%s/tokenizer.json", dir);
    remove(file);
    remove(path);
    assert_ok(ag_quantize(dir, path, &(ag_quantize_params){.type = "f32"}, NULL, &err), &err);
    assert_int_equal(ag_tokenizer_load(path, &t, &err), AG_NOT_FOUND);
}

int main(void) {
    const tiny_model tiny = {.dtype = "F32", .with_tokenizer = true};
    if (!tiny_model_write(&tiny, dir, sizeof dir)) return 1;
    snprintf(path, sizeof path, "%s.gguf", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_ids_of_byte_level_bpe),
        cmocka_unit_test(keeps_ids_of_byte_fallback),
        cmocka_unit_test(rejects_tokens_without_a_merge),
        cmocka_unit_test(rejects_patterns_without_a_name),
        cmocka_unit_test(writes_no_tokenizer_if_there_is_none),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    tiny_model_remove(dir);
    return failed;
}
