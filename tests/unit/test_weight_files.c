/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/safetensors.h"
#include "formats/weight_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define GOLDEN AG_GOLDEN_MODELS "/"

/* A scratch directory of this test, and the files in it. */
typedef struct scratch {
    char dir[64];
    char path[256];
} scratch;

static const char *at(scratch *s, const char *name) {
    snprintf(s->path, sizeof s->path, "%s/%s", s->dir, name);
    return s->path;
}

static int make_scratch(void **state) {
    scratch *s = calloc(1, sizeof *s);
    snprintf(s->dir, sizeof s->dir, "/tmp/ag-weights-XXXXXX");
    *state = s;
    return mkdtemp(s->dir) ? 0 : -1;
}

static int remove_scratch(void **state) {
    static const char *const names[] = {"model.safetensors",     "model.safetensors.index.json",
                                        "a.safetensors",         "b.safetensors",
                                        "tokenizer_config.json", "chat_template.jinja"};
    scratch *s = *state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(at(s, names[i]));
    int rc = rmdir(s->dir);
    free(s);
    return rc;
}

/* First byte of the tensor in the mapping. */
static const void *data_of(const ag_weight_files *w, const ag_source_tensor *t) {
    ag_tensor view;
    assert_int_equal(ag_weight_files_tensor(w, t, &view, NULL), AG_OK);
    return ag_tensor_data(&view);
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A file with the given header and n bytes 0, 1, 2... of data. */
static void write_tensors(const char *path, const char *json, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 8; i++) fputc((int)(strlen(json) >> (8 * i) & 255), f);
    fputs(json, f);
    for (size_t i = 0; i < n; i++) fputc((int)(i & 255), f);
    fclose(f);
}

#define F16X2(name) "{\"" name "\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}"

static void expect_failure(const char *path, ag_status want, const char *a, const char *b) {
    ag_weight_files *w = (void *)1;
    ag_error err = {0};
    ag_status st = ag_st_open(path, &w, &err);
    assert_null(w);
    if (st != want || !strstr(err.msg, a) || !strstr(err.msg, b)) {
        fail_msg("%s: %s: %s", path, ag_status_name(st), err.msg);
    }
}

static void opens_shards_as_one_set(void **state) {
    (void)state;
    ag_weight_files *w;
    ag_error err = {0};
    if (ag_st_open(GOLDEN "gqa-llama3rope-sharded", &w, &err) != AG_OK) { fail_msg("%s", err.msg); }
    assert_int_equal(ag_weight_files_n_files(w), 9);
    assert_int_equal(ag_weight_files_count(w), 30);
    for (size_t i = 1; i < ag_weight_files_count(w); i++) {
        assert_true(strcmp(ag_weight_files_at(w, i - 1)->name, ag_weight_files_at(w, i)->name) < 0);
    }
    const ag_source_tensor *t = ag_weight_files_find(w, "model.layers.2.mlp.down_proj.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, AG_BF16);
    assert_int_equal(t->shape.dim[0], 128);
    assert_int_equal(t->shape.dim[1], 352);
    assert_int_equal(t->n_bytes, 128 * 352 * 2);
    assert_null(ag_weight_files_find(w, "model.layers.3.mlp.down_proj.weight"));
    ag_weight_files_destroy(w);
    assert_int_equal(ag_st_open(GOLDEN "gqa-llama3rope-sharded/"
                                       "model.safetensors.index.json",
                                &w, &err),
                     AG_OK);
    ag_weight_files_destroy(w);
}

static void mmap_and_read_give_equal_bytes_after_drop(void **state) {
    (void)state;
    ag_weight_files *w;
    assert_int_equal(ag_st_open(GOLDEN "mha-tied-f32", &w, NULL), AG_OK);
    for (size_t i = 0; i < ag_weight_files_count(w); i++) {
        const ag_source_tensor *t = ag_weight_files_at(w, i);
        char *copy = malloc(t->n_bytes);
        assert_int_equal(ag_weight_files_read(w, t, 0, copy, t->n_bytes, NULL), AG_OK);
        assert_memory_equal(copy, data_of(w, t), t->n_bytes);
        ag_weight_files_drop(w, t, 0, t->n_bytes + 1);
        assert_memory_equal(copy, data_of(w, t), t->n_bytes);
        assert_int_equal(ag_weight_files_read(w, t, 4, copy, t->n_bytes - 3, NULL), AG_INVALID);
        assert_int_equal(ag_weight_files_read(w, t, t->n_bytes, copy, 0, NULL), AG_OK);
        assert_int_equal(ag_weight_files_read(w, t, UINT64_MAX, copy, 2, NULL), AG_INVALID);
        free(copy);
    }
    ag_weight_files_destroy(w);
}

/* Kilobytes of Rss in this process that come from the file. */
static long resident_kb(const char *path) {
    char line[600];
    long kb = 0, total = 0;
    int inside = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && strchr(line, ':') && strchr(line, '/'))
            inside = !!strstr(line, path);
        else if (strchr(line, '-') && !strchr(line, '/') && strstr(line, " 00:00 ")) inside = 0;
        if (inside && sscanf(line, "Rss: %ld", &kb) == 1) total += kb;
    }
    fclose(f);
    return total;
}

static void dropped_slices_are_not_resident(void **state) {
    (void)state;
    if (access("/proc/self/smaps", R_OK) != 0) skip();
    ag_weight_files *w;
    assert_int_equal(ag_st_open(AG_SOURCE_DIR "/models/demo", &w, NULL), AG_OK);
    const char *path = ag_weight_files_path(w, 0);
    long peak = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < ag_weight_files_count(w); i++) {
        const ag_source_tensor *t = ag_weight_files_at(w, i);
        const unsigned char *p = data_of(w, t);
        enum { SLICE = 100000 };
        for (uint64_t first = 0; first < t->n_bytes; first += SLICE) {
            for (uint64_t k = first; k < t->n_bytes && k < first + SLICE; k++) sum += p[k];
            long now = i == 0 ? resident_kb(path) : 0;
            if (now > peak) peak = now;
            ag_weight_files_drop(w, t, first, SLICE);
        }
        ag_weight_files_drop(w, t, 0, t->n_bytes);
    }
    assert_true(sum > 0);
    assert_true(peak > 0);
    if (resident_kb(path) > 0) fail_msg("%ld kB of the file are resident", resident_kb(path));
    ag_weight_files_destroy(w);
}

static void reading_a_truncated_file_is_an_io_error(void **state) {
    scratch *s = *state;
    write_tensors(at(s, "model.safetensors"), F16X2("t"), 4);
    ag_weight_files *w;
    assert_int_equal(ag_st_open(s->dir, &w, NULL), AG_OK);
    assert_int_equal(ag_weight_files_bytes(w, 0), 8 + strlen(F16X2("t")) + 4);
    assert_int_equal(truncate(at(s, "model.safetensors"), 20), 0);
    ag_error err = {0};
    char buf[4];
    const ag_source_tensor *t = ag_weight_files_find(w, "t");
    assert_int_equal(ag_weight_files_read(w, t, 0, buf, 4, &err), AG_IO);
    assert_non_null(strstr(err.msg, "model.safetensors"));
    ag_weight_files_destroy(w);
}

static void rejects_tensors_that_are_not_weights(void **state) {
    scratch *s = *state;
    write_tensors(at(s, "model.safetensors"),
                  "{\"ids\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                  "\"deep\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[4,8]}}",
                  8);
    ag_weight_source *w;
    ag_error err = {0};
    const ag_source_tensor *t;
    assert_int_equal(ag_source_open(s->dir, &w, &err), AG_OK);
    assert_null(ag_source_find(w, "ids")); /* nothing is read before it is asked for */
    assert_int_equal(ag_source_open_tensors(w, &err), AG_OK);
    assert_int_equal(ag_source_require(w, "ids", &t, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "\"ids\" is I32"));
    assert_int_equal(ag_source_require(w, "deep", &t, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "\"deep\" has 5 dims"));
    assert_int_equal(ag_source_require(w, "none", &t, &err), AG_NOT_FOUND);
    assert_null(t);
    assert_non_null(strstr(err.msg, "\"none\""));
    ag_source_destroy(w);
}

static void check_template(const char *dir, const char *want) {
    ag_weight_source *w;
    ag_source_text text;
    ag_error err = {0};
    assert_int_equal(ag_source_open(dir, &w, &err), AG_OK);
    if (ag_source_read_text(w, AG_SOURCE_CHAT_TEMPLATE, &text, &err) != AG_OK) {
        fail_msg("%s", err.msg);
    }
    if (want) assert_string_equal(text.text, want);
    else assert_null(text.text);
    ag_source_text_free(&text);
    ag_source_destroy(w);
}

static void finds_the_chat_template_in_any_file(void **state) {
    scratch *s = *state;
    check_template(s->dir, NULL);
    write_text(at(s, "tokenizer_config.json"), "{\"chat_template\": null}");
    check_template(s->dir, NULL);
    write_text(at(s, "tokenizer_config.json"), "{\"chat_template\": \"one\"}");
    check_template(s->dir, "one");
    write_text(at(s, "tokenizer_config.json"),
               "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"},"
               "{\"name\": \"default\", \"template\": \"two\"}]}");
    check_template(s->dir, "two");
    write_text(at(s, "chat_template.jinja"), "three");
    check_template(s->dir, "three");
}

static void prefers_one_file_to_an_index(void **state) {
    scratch *s = *state;
    write_tensors(at(s, "model.safetensors"), F16X2("t"), 4);
    write_text(at(s, "model.safetensors.index.json"), "not even JSON");
    ag_weight_files *w;
    assert_int_equal(ag_st_open(s->dir, &w, NULL), AG_OK);
    ag_weight_files_destroy(w);
}

static void rejects_wrong_indices(void **state) {
    scratch *s = *state;
    static const struct {
        const char *map, *a, *b;
    } cases[] = {
        {"{\"t\":\"c.safetensors\"}", "\"c.safetensors\"", "does not exist"},
        {"{\"t\":\"a.safetensors\",\"u\":\"a.safetensors\"}", "\"u\"", "which lacks it"},
        {"{\"t\":\"b.safetensors\",\"u\":\"a.safetensors\"}", "\"t\"", "another shard"},
        {"{\"t\":\"../a.safetensors\"}", "\"../a.safetensors\"", "not a plain file name"},
        {"{\"t\":\"/etc/passwd\"}", "\"/etc/passwd\"", "not a plain file name"},
        {"{\"t\":\"..\"}", "\"..\"", "not a plain file name"},
        {"{\"t\":\"\"}", "\"\"", "not a plain file name"},
        {"{\"t\":\"a.safetensors\\u0000\"}", "\"t\"", "not a plain file name"},
        {"{\"t\":1}", "\"t\"", "not a string"},
        {"{\"t\":\"a.safetensors\",\"t\":\"b.safetensors\"}", "duplicate", "key"},
        {"{}", "index.json", "no weight_map"},
        {"[]", "index.json", "no weight_map"},
    };
    write_tensors(at(s, "a.safetensors"), F16X2("t"), 4);
    write_tensors(at(s, "b.safetensors"), F16X2("u"), 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"metadata\":{},\"weight_map\":%s}", cases[i].map);
        write_text(at(s, "model.safetensors.index.json"), text);
        expect_failure(s->dir, AG_FORMAT, cases[i].a, cases[i].b);
    }
}

static void rejects_a_tensor_in_two_shards(void **state) {
    scratch *s = *state;
    write_tensors(at(s, "a.safetensors"), F16X2("t"), 4);
    write_tensors(at(s, "b.safetensors"),
                  "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                  "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                  2);
    write_text(at(s, "model.safetensors.index.json"),
               "{\"weight_map\":{\"t\":\"a.safetensors\",\"u\":\"b.safetensors\"}}");
    expect_failure(s->dir, AG_FORMAT, "tensor \"t\"", "is also in");
}

static void reports_paths_without_a_model(void **state) {
    scratch *s = *state;
    expect_failure(at(s, "absent"), AG_NOT_FOUND, s->path, "No such file");
    expect_failure(s->dir, AG_NOT_FOUND, s->dir, "neither model.safetensors nor");
    expect_failure("/dev/null", AG_IO, "/dev/null", "not a regular file");
    expect_failure("/dev/null/x", AG_IO, "/dev/null/x", "");
    write_text(at(s, "model.safetensors"), "version https://git-lfs.github.com/spec/v1\n");
    expect_failure(s->dir, AG_FORMAT, "model.safetensors", "git lfs pull");
    unlink(s->path);
    assert_int_equal(mkfifo(s->path, 0600), 0);
    expect_failure(s->dir, AG_IO, "model.safetensors", "not a regular file");
    unlink(s->path);
    assert_int_equal(mkdir(s->path, 0700), 0);
    expect_failure(s->dir, AG_IO, "model.safetensors", "is a directory");
    assert_int_equal(rmdir(s->path), 0);
}

int main(void) {
#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, make_scratch, remove_scratch)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_shards_as_one_set),
        cmocka_unit_test(mmap_and_read_give_equal_bytes_after_drop),
        cmocka_unit_test(dropped_slices_are_not_resident),
        WITH_SCRATCH(reading_a_truncated_file_is_an_io_error),
        WITH_SCRATCH(rejects_tensors_that_are_not_weights),
        WITH_SCRATCH(prefers_one_file_to_an_index),
        WITH_SCRATCH(finds_the_chat_template_in_any_file),
        WITH_SCRATCH(rejects_wrong_indices),
        WITH_SCRATCH(rejects_a_tensor_in_two_shards),
        WITH_SCRATCH(reports_paths_without_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
