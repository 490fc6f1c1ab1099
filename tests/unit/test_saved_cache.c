/* SPDX-License-Identifier: Apache-2.0 */
/* Saved caches: a restored session has the same logits from then on. Damaged or foreign files fail
 * with a reason and leave the session unchanged. */
#include "core/checksum.h"
#include "core/little_endian.h"

#include <antigravity/expert.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODELS AG_GOLDEN_MODELS
#define MODEL MODELS "/gqa-llama3rope-sharded"

static ag_backend *backend;
static ag_model *model;
static size_t n_vocab;
static char dir[64], path[96];

static int load(void **state) {
    (void)state;
    ag_backend_params bp = {.n_threads = 2};
    if (ag_backend_create(&bp, &backend, NULL) != AG_OK) return 1;
    if (ag_model_load(backend, MODEL, NULL, &model, NULL) != AG_OK) return 1;
    n_vocab = ag_model_get_info(model)->n_vocab;
    strcpy(dir, "/tmp/antigravity-saved-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    snprintf(path, sizeof path, "%s/cache", dir);
    return 0;
}

static int unload(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    unlink(path);
    return rmdir(dir); /* fails if any other file is left */
}

static ag_session_params params_of(const char *policy, ag_dtype k, ag_dtype v) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 400;
    p.prefill_chunk = 48;
    p.k_type = k;
    p.v_type = v;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = 100;
    p.eviction.recent = 8;
    p.eviction.slack = 16;
    p.eviction.snapkv_window = 8;
    return p;
}

static ag_session *make_of(ag_model *m, const ag_session_params *p) {
    ag_session *s;
    ag_error err;
    if (ag_session_create(m, p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static ag_session *make(const char *policy) {
    ag_session_params p = params_of(policy, AG_F16, AG_F16);
    return make_of(model, &p);
}

static int32_t id_at(size_t i) { return (int32_t)((i * 7 + i * i % 61) % 300) + 3; }

static void feed(ag_session *s, size_t n) {
    int32_t *ids = malloc(n * sizeof *ids);
    ag_error err;
    for (size_t i = 0; i < n; i++) ids[i] = id_at(ag_session_position(s) + i);
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    free(ids);
}

static void save(ag_session *s) {
    ag_error err;
    if (ag_session_save(s, path, NULL, NULL, 0, &err) != AG_OK) fail_msg("%s", err.msg);
}

static void restore(ag_session *s) {
    ag_error err;
    if (ag_session_restore(s, path, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
}

static void same_logits(const ag_session *a, const ag_session *b) {
    assert_non_null(ag_session_logits(a));
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n_vocab * sizeof(float));
}

static void continue_alike(ag_session *a, ag_session *b, size_t steps) {
    assert_int_equal(ag_session_position(a), ag_session_position(b));
    for (size_t i = 0; i < steps; i++) {
        feed(a, 1);
        feed(b, 1);
        same_logits(a, b);
    }
}

/* ---- restored sessions ---- */

static void round_trip(const ag_session_params *p) {
    ag_session *a = make_of(model, p), *b = make_of(model, p);
    feed(a, 150);
    for (int i = 0; i < 12; i++) feed(a, 1);
    save(a);
    restore(b);
    same_logits(a, b);
    assert_int_equal(ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(a)),
                     ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(b)));
    continue_alike(a, b, 20); /* with an eviction, if the policy has any */
    feed(a, 30);
    feed(b, 30);
    same_logits(a, b);
    ag_session_destroy(a);
    ag_session_destroy(b);
}

static void every_policy_continues_after_restore(void **state) {
    (void)state;
    for (size_t i = 0; ag_eviction_policy_at(i); i++) {
        ag_session_params p = params_of(ag_eviction_policy_at(i)->name, AG_F16, AG_F16);
        round_trip(&p);
    }
}

/* gpt-oss: sinks join the softmax, every other layer has a window, and experts differ by token. */
static void sinks_and_windows_continue_after_restore(void **state) {
    (void)state;
    ag_model *const plain = model;
    const size_t n_plain = n_vocab;
    ag_error err;
    if (ag_model_load(backend, MODELS "/gpt-oss", NULL, &model, &err) != AG_OK)
        fail_msg("%s", err.msg);
    n_vocab = ag_model_get_info(model)->n_vocab;
    every_policy_continues_after_restore(state);
    ag_model_destroy(model);
    model = plain;
    n_vocab = n_plain;
}

static void every_cache_type_continues_after_restore(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    for (size_t k = 0; k < 4; k++) {
        ag_session_params p = params_of("h2o", types[k], types[3 - k]);
        round_trip(&p);
        p.k_rotation = k % 2 ? AG_K_ROTATION_ON : AG_K_ROTATION_OFF;
        round_trip(&p);
        p = params_of("none", types[k], types[k]);
        round_trip(&p);
    }
}

static void restores_the_moved_prefix_with_its_copies(void **state) {
    (void)state;
    ag_session *a = make("keydiff"), *b = make("keydiff");
    feed(a, ag_model_get_info(model)->max_positions + 30);
    save(a);
    restore(b);
    continue_alike(a, b, 30);
    ag_session_destroy(a);
    ag_session_destroy(b);
}

static void restores_ids_into_a_used_session(void **state) {
    (void)state;
    ag_session *a = make("none"), *b = make("none");
    ag_error err;
    ag_ids ids = {0};
    int32_t consumed[40];
    for (size_t i = 0; i < 40; i++) consumed[i] = id_at(i);
    feed(a, 40);
    feed(b, 300);
    assert_int_equal(ag_session_save(a, path, NULL, consumed, 39, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "n_ids is 39: it must be 0 or 40"));
    assert_int_equal(ag_session_save(a, path, NULL, consumed, 40, &err), AG_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ag_session_restore(b, path, NULL, &ids, &err), AG_OK);
        assert_int_equal(ids.n, 40);
        assert_memory_equal(ids.data, consumed, sizeof consumed);
    }
    continue_alike(a, b, 5);
    ag_ids_free(&ids);
    ag_session_destroy(a);
    ag_session_destroy(b);
}

static void saves_sessions_without_tokens_or_logits(void **state) {
    (void)state;
    ag_session *a = make("snapkv"), *b = make("snapkv");
    save(a);
    feed(b, 5);
    restore(b);
    assert_int_equal(ag_session_position(b), 0);
    assert_null(ag_session_logits(b));
    feed(a, 20);
    assert_int_equal(ag_session_truncate(a, 10, NULL), AG_OK);
    save(a);
    restore(b);
    assert_null(ag_session_logits(b));
    continue_alike(a, b, 3);
    ag_session_destroy(a);
    ag_session_destroy(b);
}

static void smaller_budget_applies_to_the_next_token(void **state) {
    (void)state;
    ag_session_params p = params_of("streaming", AG_F16, AG_F16);
    ag_session *a = make_of(model, &p);
    p.eviction.budget_tokens = 50;
    ag_session *b = make_of(model, &p);
    feed(a, 90);
    save(a);
    restore(b);
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(b)), 90);
    feed(b, 1);
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(b)), 50);
    ag_session_destroy(a);
    ag_session_destroy(b);
}

/* ---- rejected files ---- */

static void refused(ag_session *s, ag_status status, const char *why) {
    ag_error err;
    char named[300];
    float *before = malloc(n_vocab * sizeof *before);
    uint32_t position = ag_session_position(s);
    memcpy(before, ag_session_logits(s), n_vocab * sizeof *before);
    assert_int_equal(ag_session_restore(s, path, NULL, NULL, &err), status);
    snprintf(named, sizeof named, "%s: %s", path, why);
    if (strncmp(err.msg, named, strlen(named)) != 0) fail_msg("%s\nnot %s", err.msg, named);
    assert_int_equal(ag_session_position(s), position);
    assert_memory_equal(ag_session_logits(s), before, n_vocab * sizeof *before);
    free(before);
}

static void names_the_parameter_that_differs(void **state) {
    (void)state;
    ag_session *a = make("none");
    feed(a, 20);
    save(a);
    ag_session_destroy(a);
    const struct {
        const char *policy;
        ag_dtype k, v;
        ag_k_rotation rotation;
        ag_status status;
        const char *why;
    } cases[] = {
        {"none", AG_Q8_0, AG_F16, AG_K_ROTATION_OFF, AG_UNSUPPORTED,
         "saved for k_type f16, this session has q8_0"},
        {"none", AG_F16, AG_F32, AG_K_ROTATION_OFF, AG_UNSUPPORTED,
         "saved for v_type f16, this session has f32"},
        {"none", AG_F16, AG_F16, AG_K_ROTATION_ON, AG_UNSUPPORTED,
         "saved for k_rotation none, this session has hadamard"},
        {"h2o", AG_F16, AG_F16, AG_K_ROTATION_OFF, AG_UNSUPPORTED,
         "saved for eviction_policy none, this session has h2o"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ag_session_params p = params_of(cases[i].policy, cases[i].k, cases[i].v);
        p.k_rotation = cases[i].rotation;
        ag_session *s = make_of(model, &p);
        feed(s, 3);
        refused(s, cases[i].status, cases[i].why);
        ag_session_destroy(s);
    }
    ag_session_params p = params_of("none", AG_F16, AG_F16);
    p.max_seq_len = 19;
    ag_session *s = make_of(model, &p);
    feed(s, 3);
    refused(s, AG_LIMIT, "saved with 20 slots, this session has 19 (max_seq_len)");
    ag_session_destroy(s);
    a = make("tova");
    feed(a, 20);
    save(a);
    ag_session_destroy(a);
    s = make("h2o");
    feed(s, 3);
    refused(s, AG_UNSUPPORTED, "saved for eviction_policy tova, this session has h2o");
    ag_session_destroy(s);
}

static void names_another_model(void **state) {
    (void)state;
    const ag_model_params q8 = {.weights = AG_Q8_0};
    ag_session_params p = params_of("none", AG_F16, AG_F16);
    ag_session *a = make("none");
    feed(a, 20);
    save(a);
    ag_session_destroy(a);
    ag_model *other;
    assert_int_equal(ag_model_load(backend, MODEL, &q8, &other, NULL), AG_OK);
    ag_session *s = make_of(other, &p);
    feed(s, 3);
    refused(s, AG_UNSUPPORTED, "saved for weight_type mix, this session has q8_0");
    ag_session_destroy(s);
    ag_model_destroy(other);
    assert_int_equal(ag_model_load(backend, MODELS "/linear-rope", NULL, &other, NULL), AG_OK);
    s = make_of(other, &p);
    ag_error err;
    assert_int_equal(ag_session_restore(s, path, NULL, NULL, &err), AG_UNSUPPORTED);
    ag_session_destroy(s);
    ag_model_destroy(other);
}

static void names_another_tokenizer(void **state) {
    (void)state;
    static const char json[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"%s\": 0, \"b\": 1}, "
                               "\"merges\": []}}";
    char text[2][sizeof json];
    ag_tokenizer *t[2];
    ag_error err;
    for (int i = 0; i < 2; i++) {
        snprintf(text[i], sizeof text[i], json, i ? "z" : "a");
        if (ag_tokenizer_parse(text[i], strlen(text[i]), "text", &t[i], &err) != AG_OK)
            fail_msg("%s", err.msg);
    }
    ag_session *a = make("none");
    feed(a, 20);
    assert_int_equal(ag_session_save(a, path, t[0], NULL, 0, &err), AG_OK);
    assert_int_equal(ag_session_restore(a, path, t[1], NULL, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "saved for tokenizer "));
    assert_int_equal(ag_session_restore(a, path, t[0], NULL, &err), AG_OK);
    assert_int_equal(ag_session_restore(a, path, NULL, NULL, &err), AG_OK);
    ag_session_destroy(a);
    ag_tokenizer_destroy(t[0]);
    ag_tokenizer_destroy(t[1]);
}

typedef struct bytes {
    unsigned char *data;
    size_t n;
} bytes;

static bytes read_file(void) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    struct stat s;
    assert_int_equal(fstat(fileno(f), &s), 0);
    bytes b = {malloc((size_t)s.st_size + 1), (size_t)s.st_size};
    assert_int_equal(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static void write_file(const bytes *b, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Returns the offset after i: every byte at the start of the file, few later. */
static size_t next_place(size_t i, size_t n) {
    if (i < 40) return i + 1;
    if (i + 1 < n && i + 30 > n) return i + 1;
    return i + 211 < n ? i + 211 : i < n - 20 ? n - 20 : n;
}

static void detects_any_damaged_byte(void **state) {
    (void)state;
    ag_session *a = make("h2o"), *s = make("h2o");
    ag_error err;
    feed(a, 60);
    save(a);
    feed(s, 3);
    bytes b = read_file();
    for (size_t i = 0; i < b.n; i = next_place(i, b.n)) {
        b.data[i] ^= 0x10;
        write_file(&b, b.n);
        ag_status st = ag_session_restore(s, path, NULL, NULL, &err);
        if (st != AG_FORMAT && st != AG_UNSUPPORTED) fail_msg("byte %zu: status %d", i, (int)st);
        assert_int_equal(ag_session_position(s), 3);
        b.data[i] ^= 0x10;
    }
    b.data[b.n / 2] ^= 1;
    write_file(&b, b.n);
    refused(s, AG_FORMAT, "damaged: the checksum of its bytes is ");
    b.data[b.n / 2] ^= 1;
    b.data[8]++;
    write_file(&b, b.n);
    refused(s, AG_UNSUPPORTED,
            "unsupported version 2 of a saved cache; this library reads version 1");
    b.data[8]--;
    write_file(&b, b.n);
    assert_int_equal(ag_session_restore(s, path, NULL, NULL, &err), AG_OK);
    free(b.data);
    ag_session_destroy(a);
    ag_session_destroy(s);
}

static void detects_another_file_length(void **state) {
    (void)state;
    ag_session *s = make("none");
    ag_error err;
    feed(s, 60);
    save(s);
    bytes b = read_file();
    for (size_t n = 0; n < b.n; n = next_place(n, b.n)) {
        write_file(&b, n);
        assert_int_equal(ag_session_restore(s, path, NULL, NULL, &err), AG_FORMAT);
    }
    write_file(&b, b.n - 1);
    char why[80];
    snprintf(why, sizeof why, "damaged: %zu bytes, it was saved with %zu", b.n - 1, b.n);
    refused(s, AG_FORMAT, why);
    b.data[b.n] = 0;
    write_file(&b, b.n + 1);
    snprintf(why, sizeof why, "damaged: %zu bytes, it was saved with %zu", b.n + 1, b.n);
    refused(s, AG_FORMAT, why);
    memcpy(b.data, "# Some notes", 12);
    write_file(&b, b.n);
    refused(s, AG_FORMAT, "not a saved cache");
    free(b.data);
    ag_session_destroy(s);
}

/* Replaces n bytes of the file and corrects its checksum. */
static void edit(const bytes *good, size_t at, const void *data, size_t n) {
    bytes b = {malloc(good->n), good->n};
    ag_checksum sum;
    memcpy(b.data, good->data, b.n);
    memcpy(b.data + at, data, n);
    ag_checksum_begin(&sum);
    ag_checksum_add(&sum, b.data, b.n - 8);
    ag_put_number(b.data + b.n - 8, ag_checksum_value(&sum), 8);
    write_file(&b, b.n);
    free(b.data);
}

static void rejects_values_that_are_not_finite(void **state) {
    (void)state;
    enum { N = 60, HEAD = 24, SIZES = 8 + 16, MOVED_BY = 4, SEAL = 8 };
    static const uint16_t f16[] = {0x7e00, 0x7c00, 0xfc00}; /* NaN, infinity, -infinity */
    static const float f32[] = {NAN, INFINITY, 2e18f, -2e18f};
    const ag_model_info *info = ag_model_get_info(model);
    for (int wide = 0; wide < 2; wide++) {
        const ag_dtype type = wide ? AG_F32 : AG_F16;
        ag_session_params p = params_of("none", type, type);
        ag_session *s = make_of(model, &p);
        feed(s, N);
        save(s);
        bytes b = read_file();
        const size_t row = info->head_dim * ag_dtype_row_bytes(type, 1);
        const size_t values_end = b.n - SEAL - MOVED_BY, keys_end = values_end - N * row;
        const size_t n = wide ? sizeof f32 / sizeof *f32 : sizeof f16 / sizeof *f16;
        const size_t bytes_each = wide ? sizeof *f32 : sizeof *f16;
        for (size_t i = 0; i < n; i++) {
            const void *bad = wide ? (const void *)&f32[i] : (const void *)&f16[i];
            edit(&b, values_end - bytes_each, bad, bytes_each);
            refused(s, AG_FORMAT, "damaged: a key, value or state is ");
            edit(&b, keys_end - bytes_each, bad, bytes_each);
            refused(s, AG_FORMAT, "damaged: a key, value or state is ");
        }
        const size_t logits = HEAD + (size_t)ag_get_number(b.data + 12, 4) + SIZES +
                              (size_t)info->n_layers * info->n_kv_heads * 4;
        edit(&b, logits, &f32[0], sizeof *f32);
        refused(s, AG_FORMAT, "damaged: logit 0 is nan");
        edit(&b, logits + 4, &f32[1], sizeof *f32);
        refused(s, AG_FORMAT, "damaged: logit 1 is inf");
        const float lowest = -INFINITY; /* a token that is never chosen */
        edit(&b, logits, &lowest, sizeof lowest);
        restore(s);
        free(b.data);
        ag_session_destroy(s);
    }
}

/* ---- paths ---- */

static size_t n_files(void) {
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void names_paths_that_cannot_be_written(void **state) {
    (void)state;
    ag_session *s = make("none");
    ag_error err;
    feed(s, 5);
    assert_int_equal(ag_session_save(s, "/nowhere/at/all", NULL, NULL, 0, &err), AG_IO);
    assert_non_null(strstr(err.msg, "/nowhere/at/all: "));
    assert_non_null(strstr(err.msg, "No such file or directory"));
    assert_int_equal(ag_session_save(s, dir, NULL, NULL, 0, &err), AG_IO);
    assert_non_null(strstr(err.msg, "exists and is not a regular file"));
    assert_int_equal(ag_session_save(s, "/dev/full", NULL, NULL, 0, &err), AG_IO);
    assert_non_null(strstr(err.msg, "/dev/full: exists and is not a regular file"));
    assert_int_equal(ag_session_restore(s, "/nowhere/at/all", NULL, NULL, &err), AG_NOT_FOUND);
    assert_int_equal(ag_session_restore(s, dir, NULL, NULL, &err), AG_IO);
    assert_int_equal(ag_session_restore(s, "/dev/zero", NULL, NULL, &err), AG_IO);
    ag_session_destroy(s);
}

static void follows_links_and_writes_private_files(void **state) {
    (void)state;
    char link_path[128];
    struct stat at;
    ag_session *s = make("none");
    ag_error err;
    feed(s, 5);
    save(s);
    assert_int_equal(stat(path, &at), 0);
    assert_int_equal(at.st_mode & 0777, 0600);
    snprintf(link_path, sizeof link_path, "%s/link", dir);
    assert_int_equal(symlink(path, link_path), 0);
    feed(s, 5);
    assert_int_equal(ag_session_save(s, link_path, NULL, NULL, 0, &err), AG_OK);
    assert_int_equal(lstat(link_path, &at), 0);
    assert_true(S_ISLNK(at.st_mode));
    ag_session *other = make("none");
    restore(other);
    assert_int_equal(ag_session_position(other), 10);
    unlink(link_path);
    ag_session_destroy(s);
    ag_session_destroy(other);
}

/* Runs in a process whose files are limited to 8 KB, which acts as a full disk. */
static int save_to_a_full_disk(ag_session *s) {
    const struct rlimit little = {8192, 8192};
    ag_error err;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &little) != 0) return 2;
    if (ag_session_save(s, path, NULL, NULL, 0, &err) != AG_IO) return 3;
    return strstr(err.msg, "writing failed: ") ? 0 : 4;
}

static void full_disk_keeps_the_old_file(void **state) {
    (void)state;
    ag_session *s = make("none");
    feed(s, 5);
    save(s);
    bytes before = read_file();
    feed(s, 100);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) _exit(save_to_a_full_disk(s));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(n_files(), 1);
    bytes after = read_file();
    assert_int_equal(before.n, after.n);
    assert_memory_equal(before.data, after.data, before.n);
    free(before.data);
    free(after.data);
    ag_session_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_continues_after_restore),
        cmocka_unit_test(sinks_and_windows_continue_after_restore),
        cmocka_unit_test(every_cache_type_continues_after_restore),
        cmocka_unit_test(restores_the_moved_prefix_with_its_copies),
        cmocka_unit_test(restores_ids_into_a_used_session),
        cmocka_unit_test(saves_sessions_without_tokens_or_logits),
        cmocka_unit_test(smaller_budget_applies_to_the_next_token),
        cmocka_unit_test(names_the_parameter_that_differs),
        cmocka_unit_test(names_another_model),
        cmocka_unit_test(names_another_tokenizer),
        cmocka_unit_test(detects_any_damaged_byte),
        cmocka_unit_test(detects_another_file_length),
        cmocka_unit_test(rejects_values_that_are_not_finite),
        cmocka_unit_test(names_paths_that_cannot_be_written),
        cmocka_unit_test(follows_links_and_writes_private_files),
        cmocka_unit_test(full_disk_keeps_the_old_file),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
