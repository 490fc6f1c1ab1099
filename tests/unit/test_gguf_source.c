/* SPDX-License-Identifier: Apache-2.0 */
/* Tests GGUF files as weight sources: the files that a path selects, and their contents. */
#include "support/failing_allocator.h"
#include "support/gguf_file.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A scratch directory of this test, and the files in it. */
typedef struct scratch {
    char dir[64];
    char path[256];
} scratch;

static const char *const names[] = {
    "m.gguf",     "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf",
    "other.gguf", "mmproj-m.gguf",         "model.safetensors",     "m-00001-of-00002.gguf",
    "no-suffix"};

static const char *at(scratch *s, const char *name) {
    snprintf(s->path, sizeof s->path, "%s/%s", s->dir, name);
    return s->path;
}

static void clear(scratch *s) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(at(s, names[i]));
}

static int make_scratch(void **state) {
    scratch *s = calloc(1, sizeof *s);
    snprintf(s->dir, sizeof s->dir, "/tmp/ag-gguf-XXXXXX");
    *state = s;
    return mkdtemp(s->dir) ? 0 : -1;
}

static int remove_scratch(void **state) {
    scratch *s = *state;
    clear(s);
    int rc = rmdir(s->dir);
    free(s);
    return rc;
}

static ag_weight_source *open_source(const char *path) {
    ag_weight_source *s;
    ag_error err = {0};
    if (ag_source_open(path, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static void save(gguf_file *f, const char *path) {
    assert_true(gguf_file_save(f, path));
    gguf_file_free(f);
}

/* Opens the source, reads all texts and opens the tensors. Returns the first error. */
static ag_status read_all(const char *path, ag_error *err) {
    ag_weight_source *s;
    ag_source_text config = {0}, jinja = {0};
    ag_source_vocabulary v = {0};
    ag_status st = ag_source_open(path, &s, err);
    if (st == AG_OK) st = ag_source_read_text(s, AG_SOURCE_CONFIG, &config, err);
    if (st == AG_OK) st = ag_source_read_text(s, AG_SOURCE_CHAT_TEMPLATE, &jinja, err);
    if (st == AG_OK) st = ag_source_read_vocabulary(s, &v, err);
    if (st == AG_OK) st = ag_source_open_tensors(s, err);
    ag_source_vocabulary_free(&v);
    ag_source_text_free(&config);
    ag_source_text_free(&jinja);
    ag_source_destroy(s);
    return st;
}

static void expect_failure(const char *path, ag_status want, const char *message) {
    ag_error err = {0};
    ag_status st = read_all(path, &err);
    if (st != want || !strstr(err.msg, message)) {
        fail_msg("%s: %s, expected %s", ag_status_name(st), err.msg, message);
    }
}

static void put_tensor(gguf_file *f, const char *name) {
    static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    gguf_put_tensor(f, name, GGML_F32, ag_shape_2d(2, 4), values, sizeof values);
}

/* ---- texts ---- */

static void configuration_is_the_metadata(void **state) {
    scratch *s = *state;
    static const char *const words[] = {"a"};
    static const double reals[] = {0.5, -2};
    gguf_file f = {0};
    uint8_t *many = calloc(4097, 1);
    gguf_put_string(&f, "general.architecture", "llama");
    gguf_put_string(&f, "name", "\xc3\xa4\"\n");
    gguf_put_u32(&f, "llama.block_count", 2);
    gguf_put_value(&f, "i8", AG_GGUF_I8, "\xff", 1);
    gguf_put_value(&f, "u64", AG_GGUF_U64, "\0\0\0\0\0\0\0\x80", 8);
    gguf_put_f32(&f, "eps", 1e-5F);
    gguf_put_bool(&f, "yes", true);
    gguf_put_strings(&f, "words", words, 1);
    gguf_put_array(&f, "reals", AG_GGUF_F64, reals, 2);
    gguf_put_array(&f, "bools", AG_GGUF_BOOL, "\1\0", 2);
    gguf_put_array(&f, "many", AG_GGUF_U8, many, 4096);
    gguf_put_array(&f, "too-many", AG_GGUF_U8, many, 4097);
    save(&f, at(s, "m.gguf"));
    free(many);
    ag_weight_source *w = open_source(s->path);
    ag_source_text text;
    assert_int_equal(ag_source_read_text(w, AG_SOURCE_CONFIG, &text, NULL), AG_OK);
    assert_string_equal(text.name, s->path);
    json_t *config = json_loadb(text.text, text.n, 0, NULL);
    assert_int_equal(strlen(text.text), text.n);
    json_t *expected =
        json_pack("{ss ss si si sf sf sb s[ff] s[bb]}", "general.architecture", "llama", "name",
                  "\xc3\xa4\"\n", "llama.block_count", 2, "i8", -1, "u64", 9223372036854775808.0,
                  "eps", (double)1e-5F, "yes", 1, "reals", 0.5, -2.0, "bools", 1, 0);
    assert_int_equal(json_array_size(json_object_get(config, "many")), 4096);
    json_object_del(config, "many");
    assert_true(json_equal(config, expected));
    json_decref(config);
    json_decref(expected);
    ag_source_text_free(&text);
    assert_int_equal(ag_source_read_text(w, AG_SOURCE_TOKENIZER, &text, NULL), AG_OK);
    assert_null(text.text);
    assert_int_equal(ag_source_read_text(w, AG_SOURCE_GENERATION_CONFIG, &text, NULL), AG_OK);
    assert_null(text.text);
    ag_source_destroy(w);
}

static void rejects_values_that_json_cannot_represent(void **state) {
    scratch *s = *state;
    static const double reals[] = {0.5, -INFINITY};
    gguf_file f = {0};
    gguf_put_string(&f, "general.name", "\xe4");
    save(&f, at(s, "m.gguf"));
    expect_failure(s->path, AG_FORMAT, "m.gguf: key \"general.name\" is not UTF-8");
    gguf_put_f32(&f, "eps", NAN);
    save(&f, s->path);
    expect_failure(s->path, AG_FORMAT, "m.gguf: key \"eps\" is not finite");
    gguf_put_array(&f, "reals", AG_GGUF_F64, reals, 2);
    save(&f, s->path);
    expect_failure(s->path, AG_FORMAT, "m.gguf: key \"reals\" is not finite");
    uint8_t *many = calloc(4096, 1);
    for (int i = 0; i < 257; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        gguf_put_array(&f, key, AG_GGUF_U8, many, 4096);
    }
    free(many);
    save(&f, s->path);
    expect_failure(s->path, AG_LIMIT, "m.gguf: its metadata have more than 1048576 values");
}

static void check_template(const char *path, const char *want) {
    ag_weight_source *w = open_source(path);
    ag_source_text text;
    assert_int_equal(ag_source_read_text(w, AG_SOURCE_CHAT_TEMPLATE, &text, NULL), AG_OK);
    if (want) assert_string_equal(text.text, want);
    else assert_null(text.text);
    ag_source_text_free(&text);
    ag_source_destroy(w);
}

static void prefers_the_unnamed_chat_template(void **state) {
    scratch *s = *state;
    static const char *const words[] = {"rag", "tool_use"};
    gguf_file f = {0};
    at(s, "m.gguf");
    gguf_put_u32(&f, "k", 1);
    gguf_put_strings(&f, "tokenizer.chat_templates", words, 2);
    assert_true(gguf_file_save(&f, s->path));
    check_template(s->path, NULL);
    gguf_put_string(&f, "tokenizer.chat_template.tool_use", "two");
    gguf_put_string(&f, "tokenizer.chat_template.rag", "one");
    assert_true(gguf_file_save(&f, s->path));
    check_template(s->path, "one");
    gguf_put_string(&f, "tokenizer.chat_template", "default");
    save(&f, s->path);
    check_template(s->path, "default");
    gguf_put_u32(&f, "tokenizer.chat_template", 1);
    save(&f, s->path);
    expect_failure(s->path, AG_FORMAT, "key \"tokenizer.chat_template\" is not a string");
}

/* ---- vocabulary ---- */

static const char *const tokens[] = {"<unk>", "a", "b", "ab"};

static void check_string(ag_source_string s, const char *want) {
    assert_int_equal(s.n, strlen(want));
    assert_memory_equal(s.text, want, s.n);
}

static void reads_the_vocabulary_unchanged(void **state) {
    scratch *s = *state;
    static const char *const merges[] = {"a b"};
    static const float scores[] = {0, -1, -2.5F, -3};
    static const int32_t types[] = {2, 1, 1, 4};
    gguf_file f = {0};
    gguf_put_string(&f, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(&f, "tokenizer.ggml.pre", "qwen2");
    gguf_put_strings(&f, "tokenizer.ggml.tokens", tokens, 4);
    gguf_put_strings(&f, "tokenizer.ggml.merges", merges, 1);
    gguf_put_array(&f, "tokenizer.ggml.scores", AG_GGUF_F32, scores, 4);
    gguf_put_array(&f, "tokenizer.ggml.token_type", AG_GGUF_I32, types, 4);
    gguf_put_u32(&f, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_u32(&f, "tokenizer.ggml.eos_token_id", 3);
    gguf_put_u32(&f, "tokenizer.ggml.padding_token_id", UINT32_MAX);
    gguf_put_bool(&f, "tokenizer.ggml.add_bos_token", true);
    gguf_put_bool(&f, "tokenizer.ggml.add_space_prefix", false);
    save(&f, at(s, "m.gguf"));
    ag_weight_source *w = open_source(s->path);
    ag_source_vocabulary v;
    assert_int_equal(ag_source_read_vocabulary(w, &v, NULL), AG_OK);
    assert_int_equal(v.n_tokens, 4);
    for (size_t i = 0; i < 4; i++) check_string(v.tokens[i], tokens[i]);
    assert_memory_equal(v.scores, scores, sizeof scores);
    assert_memory_equal(v.types, types, sizeof types);
    assert_int_equal(v.types[3], AG_TOKEN_USER_DEFINED);
    assert_int_equal(v.n_merges, 1);
    check_string(v.merges[0], "a b");
    check_string(v.model, "gpt2");
    check_string(v.pre, "qwen2");
    assert_int_equal(v.bos, 1);
    assert_int_equal(v.eos, 3);
    assert_int_equal(v.pad, -1);
    assert_int_equal(v.eot, -1);
    assert_int_equal(v.add_bos, 1);
    assert_int_equal(v.add_space_prefix, 0);
    assert_int_equal(v.add_eos, -1);
    ag_source_vocabulary_free(&v);
    assert_null(v.tokens);
    ag_source_destroy(w);
}

static void accepts_a_source_without_vocabulary(void **state) {
    scratch *s = *state;
    gguf_file f = {0};
    put_tensor(&f, "t");
    save(&f, at(s, "m.gguf"));
    const char *const paths[] = {s->path, AG_GOLDEN_MODELS "/mha-tied-f32"};
    for (size_t i = 0; i < 2; i++) {
        ag_weight_source *w = open_source(paths[i]);
        ag_source_vocabulary v = {.n_tokens = 7};
        assert_int_equal(ag_source_read_vocabulary(w, &v, NULL), AG_OK);
        assert_int_equal(v.n_tokens, 0);
        ag_source_destroy(w);
    }
}

static void rejects_inconsistent_vocabularies(void **state) {
    scratch *s = *state;
    static const struct {
        const char *key;
        ag_gguf_type type;
        bool is_array;
        size_t n;
        const char *message;
    } cases[] = {
        {"tokenizer.ggml.scores", AG_GGUF_F32, true, 3, "has 3 elements for 4 tokens"},
        {"tokenizer.ggml.token_type", AG_GGUF_I32, true, 5, "has 5 elements for 4 tokens"},
        {"tokenizer.ggml.scores", AG_GGUF_I32, true, 4, "is not an array of 32-bit reals"},
        {"tokenizer.ggml.token_type", AG_GGUF_F32, true, 4, "is not an array of 32-bit integers"},
        {"tokenizer.ggml.merges", AG_GGUF_I32, true, 4, "is not an array of strings"},
        {"tokenizer.ggml.model", AG_GGUF_I32, false, 1, "is not a string"},
        {"tokenizer.ggml.pre", AG_GGUF_BOOL, false, 1, "is not a string"},
        {"tokenizer.ggml.bos_token_id", AG_GGUF_F32, false, 1, "is not an integer"},
        {"tokenizer.ggml.eos_token_id", AG_GGUF_U32, false, 1, "4 is outside the 4 tokens"},
        {"tokenizer.ggml.eos_token_id", AG_GGUF_I32, false, 2, "-2 is outside the 4 tokens"},
    };
    static const int32_t values[] = {4, 4, 4, 4, 4}, minus_two = -2;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_file f = {0};
        gguf_put_strings(&f, "tokenizer.ggml.tokens", tokens, 4);
        if (cases[i].is_array) {
            gguf_put_array(&f, cases[i].key, cases[i].type, values, cases[i].n);
        } else {
            const void *v = cases[i].n == 2 ? &minus_two : values;
            /* A bool's byte must be one: the others begin with another. */
            gguf_put_value(&f, cases[i].key, cases[i].type,
                           cases[i].type == AG_GGUF_BOOL ? "\1" : v,
                           ag_gguf_type_bytes(cases[i].type));
        }
        save(&f, at(s, "m.gguf"));
        char message[200];
        snprintf(message, sizeof message, "m.gguf: key \"%s\"", cases[i].key);
        expect_failure(s->path, AG_FORMAT, message);
        expect_failure(s->path, AG_FORMAT, cases[i].message);
    }
}

/* ---- tensors ---- */

static void maps_and_reads_tensors(void **state) {
    scratch *s = *state;
    gguf_file f = {0};
    ag_error err = {0};
    put_tensor(&f, "z");
    put_tensor(&f, "a");
    save(&f, at(s, "no-suffix"));
    ag_weight_source *w = open_source(s->path);
    assert_int_equal(ag_source_n_tensors(w), 0);
    assert_null(ag_source_find(w, "a"));
    assert_int_equal(ag_source_open_tensors(w, &err), AG_OK);
    assert_int_equal(ag_source_n_tensors(w), 2);
    assert_string_equal(ag_source_tensor_at(w, 0)->name, "a");
    const ag_source_tensor *t;
    assert_int_equal(ag_source_require(w, "z", &t, &err), AG_OK);
    ag_tensor view;
    assert_int_equal(ag_source_map(w, t, &view, &err), AG_OK);
    assert_int_equal(view.shape.dim[0], 2);
    float values[8];
    assert_int_equal(ag_source_read(w, t, 0, values, 32, &err), AG_OK);
    assert_memory_equal(values, ag_tensor_data(&view), 32);
    assert_true(values[7] == 8);
    ag_source_drop(w, t, 0, 32);
    assert_memory_equal(values, ag_tensor_data(&view), 32);
    assert_int_equal(ag_source_n_files(w), 1);
    assert_string_equal(ag_source_file_path(w, 0), s->path);
    /* A file cut short later. */
    assert_int_equal(truncate(s->path, (off_t)t->offset + 8), 0);
    assert_int_equal(ag_source_read(w, t, 0, values, 32, &err), AG_IO);
    assert_non_null(strstr(err.msg, "no-suffix: ends at byte"));
    ag_source_destroy(w);
}

static void reports_types_that_are_not_of_weights(void **state) {
    scratch *s = *state;
    gguf_file f = {0};
    gguf_put_tensor(&f, "iq", 16, ag_shape_1d(256), NULL, 66);
    gguf_put_tensor(&f, "ids", GGML_I32, ag_shape_1d(8), NULL, 32);
    gguf_put_tensor(&f, "q", GGML_Q4_0, ag_shape_1d(32), NULL, 18);
    save(&f, at(s, "m.gguf"));
    ag_weight_source *w = open_source(s->path);
    const ag_source_tensor *t;
    ag_error err = {0};
    assert_int_equal(ag_source_open_tensors(w, &err), AG_OK);
    assert_int_equal(ag_source_require(w, "iq", &t, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "m.gguf: tensor \"iq\" is IQ2_XXS; weights may be"));
    assert_int_equal(ag_source_require(w, "ids", &t, &err), AG_UNSUPPORTED);
    assert_int_equal(ag_source_require(w, "q", &t, &err), AG_OK);
    ag_source_destroy(w);
}

static void rejects_impossible_sets_of_tensors(void **state) {
    scratch *s = *state;
    gguf_file f = {0};
    at(s, "m.gguf");
    gguf_put_u32(&f, "k", 1);
    save(&f, s->path);
    expect_failure(s->path, AG_NOT_FOUND, "m.gguf: holds no tensors");
    put_tensor(&f, "t");
    put_tensor(&f, "t");
    save(&f, s->path);
    expect_failure(s->path, AG_FORMAT, "m.gguf: tensor \"t\" occurs twice, at byte");
}

/* ---- which files ---- */

static void put_split(gguf_file *f, uint16_t no, uint16_t count, int32_t n_tensors) {
    gguf_put_value(f, "split.no", AG_GGUF_U16, &no, 2);
    gguf_put_value(f, "split.count", AG_GGUF_U16, &count, 2);
    gguf_put_value(f, "split.tensors.count", AG_GGUF_I32, &n_tensors, 4);
}

static void save_part(scratch *s, uint16_t no, uint16_t count, const char *name,
                      const char *tensor) {
    gguf_file f = {0};
    put_split(&f, no, count, 3);
    if (no == 0) gguf_put_string(&f, "general.name", "whole");
    put_tensor(&f, tensor);
    save(&f, at(s, name));
}

static void save_parts(scratch *s) {
    clear(s);
    save_part(s, 0, 3, names[1], "c");
    save_part(s, 1, 3, names[2], "a");
    save_part(s, 2, 3, names[3], "b");
}

static void opens_all_shards_by_any_of_them(void **state) {
    scratch *s = *state;
    save_parts(s);
    for (size_t i = 0; i < 4; i++) { /* the directory last */
        ag_weight_source *w = open_source(i < 3 ? at(s, names[1 + i]) : s->dir);
        ag_error err = {0};
        ag_source_text config;
        assert_int_equal(ag_source_read_text(w, AG_SOURCE_CONFIG, &config, &err), AG_OK);
        assert_non_null(strstr(config.text, "\"general.name\":\"whole\""));
        ag_source_text_free(&config);
        if (ag_source_open_tensors(w, &err) != AG_OK) fail_msg("%s", err.msg);
        assert_int_equal(ag_source_n_tensors(w), 3);
        assert_int_equal(ag_source_n_files(w), 3);
        const ag_source_tensor *t = ag_source_find(w, "b");
        assert_string_equal(ag_source_file_path(w, t->file), at(s, names[3]));
        float values[8];
        assert_int_equal(ag_source_read(w, t, 0, values, 32, &err), AG_OK);
        assert_true(values[7] == 8);
        ag_source_destroy(w);
    }
}

static void rejects_shards_that_do_not_match(void **state) {
    scratch *s = *state;
    for (int i = 1; i <= 3; i++) {
        save_parts(s);
        unlink(at(s, names[i]));
        char message[64];
        snprintf(message, sizeof message, "%s: is missing", names[i]);
        expect_failure(at(s, names[i == 1 ? 2 : 1]), AG_FORMAT, message);
    }
    save_parts(s);
    save_part(s, 2, 3, names[2], "a");
    expect_failure(at(s, names[1]), AG_FORMAT, "say 2 (counted from 0) of 3, its name says part 2");
    save_part(s, 1, 4, names[2], "a");
    expect_failure(at(s, names[1]), AG_FORMAT, "of 4, its name says part 2 of 3");
    save_part(s, 1, 3, names[2], "b");
    expect_failure(at(s, names[1]), AG_FORMAT, "tensor \"b\" is also in");
    gguf_file f = {0};
    put_split(&f, 1, 3, 3);
    save(&f, at(s, names[2]));
    expect_failure(at(s, names[1]), AG_FORMAT, "says 3, the files hold 2 tensors");
    clear(s);
    save_part(s, 0, 3, "m.gguf", "c");
    expect_failure(s->path, AG_FORMAT, "of 3, its name says part 1 of 1; names are NAME-00001");
}

static void opens_a_full_model_named_like_a_shard(void **state) {
    scratch *s = *state;
    gguf_file f = {0};
    put_split(&f, 0, 0, 1); /* as written by a tool that merges shards */
    put_tensor(&f, "t");
    assert_true(gguf_file_save(&f, at(s, "m.gguf")));
    ag_error err = {0};
    if (read_all(s->path, &err) != AG_OK) fail_msg("%s", err.msg);
    save(&f, at(s, "m-00001-of-00002.gguf"));
    expect_failure(s->path, AG_FORMAT, "say 0 (counted from 0) of 0, its name says part 1 of 2");
}

static void opens_a_directory_with_one_model(void **state) {
    scratch *s = *state;
    gguf_file f = {0};
    ag_error err = {0};
    put_tensor(&f, "t");
    assert_true(gguf_file_save(&f, at(s, "m.gguf")));
    assert_true(gguf_file_save(&f, at(s, "mmproj-m.gguf")));
    if (read_all(s->dir, &err) != AG_OK) fail_msg("%s", err.msg);
    save(&f, at(s, "other.gguf"));
    expect_failure(s->dir, AG_UNSUPPORTED,
                   "holds 2 GGUF models, give the file of one: m.gguf, other.gguf");
    /* Safetensors files are taken before them. */
    FILE *file = fopen(at(s, "model.safetensors"), "wb");
    fclose(file);
    expect_failure(s->dir, AG_NOT_FOUND, "config.json");
}

static void failed_allocation_leaks_nothing(void **state) {
    scratch *s = *state;
    static const int32_t types[] = {2, 1, 1, 4};
    gguf_file f = {0};
    clear(s);
    put_split(&f, 0, 3, 3);
    gguf_put_string(&f, "tokenizer.chat_template", "x");
    gguf_put_strings(&f, "tokenizer.ggml.tokens", tokens, 4);
    gguf_put_strings(&f, "tokenizer.ggml.merges", tokens, 4);
    gguf_put_array(&f, "tokenizer.ggml.scores", AG_GGUF_F32, types, 4);
    gguf_put_array(&f, "tokenizer.ggml.token_type", AG_GGUF_I32, types, 4);
    put_tensor(&f, "c");
    save(&f, at(s, names[1]));
    save_part(s, 1, 3, names[2], "a");
    save_part(s, 2, 3, names[3], "b");
    failing_allocator a;
    for (size_t n = 0;; n++) {
        ag_error err = {0};
        failing_install(&a, n);
        ag_status st = read_all(s->dir, &err);
        ag_set_allocator(NULL);
        assert_int_equal(atomic_load(&a.in_use), 0);
        if (!atomic_load(&a.failed)) {
            assert_int_equal(st, AG_OK);
            break;
        }
        if (st == AG_OK) fail_msg("allocation %zu does not matter", n);
        if (st != AG_NOMEM) fail_msg("allocation %zu: %s: %s", n, ag_status_name(st), err.msg);
        assert_true(n < 200);
    }
}

/* ---- files that others made ---- */

static void expect_shared(const char *name, size_t n_tensors, size_t n_tokens, size_t n_merges,
                          const char *model) {
    char path[1024];
    struct stat info;
    ag_error err = {0};
    snprintf(path, sizeof path, AG_SHARED_DIR "/formats/%s", name);
    if (stat(path, &info) != 0) {
        print_message("skipped: no %s\n", path);
        skip();
    }
    ag_weight_source *w = open_source(path);
    ag_source_vocabulary v;
    assert_int_equal(ag_source_read_vocabulary(w, &v, NULL), AG_OK);
    assert_int_equal(v.n_tokens, n_tokens);
    assert_int_equal(v.n_merges, n_merges);
    check_string(v.model, model);
    ag_source_vocabulary_free(&v);
    assert_int_equal(ag_source_open_tensors(w, &err), n_tensors ? AG_OK : AG_NOT_FOUND);
    assert_int_equal(ag_source_n_tensors(w), n_tensors);
    ag_source_destroy(w);
}

static void reads_files_of_other_writers(void **state) {
    (void)state;
    expect_shared("ggml-vocab-gpt-2.gguf", 0, 50257, 50000, "gpt2");
    expect_shared("ggml-vocab-llama-spm.gguf", 0, 32000, 0, "llama");
    expect_shared("ggml-vocab-phi-3.gguf", 0, 32064, 0, "llama");
    expect_shared("llama-2-tiny-random.gguf", 12, 32000, 0, "llama");
}

int main(void) {
#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, make_scratch, remove_scratch)
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(configuration_is_the_metadata),
        WITH_SCRATCH(rejects_values_that_json_cannot_represent),
        WITH_SCRATCH(prefers_the_unnamed_chat_template),
        WITH_SCRATCH(reads_the_vocabulary_unchanged),
        WITH_SCRATCH(accepts_a_source_without_vocabulary),
        WITH_SCRATCH(rejects_inconsistent_vocabularies),
        WITH_SCRATCH(maps_and_reads_tensors),
        WITH_SCRATCH(reports_types_that_are_not_of_weights),
        WITH_SCRATCH(rejects_impossible_sets_of_tensors),
        WITH_SCRATCH(opens_all_shards_by_any_of_them),
        WITH_SCRATCH(rejects_shards_that_do_not_match),
        WITH_SCRATCH(opens_a_full_model_named_like_a_shard),
        WITH_SCRATCH(opens_a_directory_with_one_model),
        WITH_SCRATCH(failed_allocation_leaks_nothing),
        cmocka_unit_test(reads_files_of_other_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
