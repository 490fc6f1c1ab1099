/* SPDX-License-Identifier: Apache-2.0 */
/* Fails the first, second, third ... allocation of everything from loading a model to a generation
 * that is forked, saved and restored: each time one clean error, no leak, and the next
 * run is complete. Run under the address sanitizer, which reports leaks.
 * "test_oom all" fails more of them with a mix of weights and, one in five, with a second thread.
 */
#include "core/alloc.h"
#include "support/tiny_model.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <unistd.h>

static char model_dir[512], saved_path[600], gguf_path[600];
static uint32_t n_threads = 1;
static bool takes_all;
/* The type that matrices become. Searching the scales of a mix takes most of a run's time. */
static ag_dtype weights = AG_Q8_0;
static atomic_llong countdown; /* allocations that still succeed */
static atomic_llong n_live;

static bool refuse_now(void) { return atomic_fetch_sub(&countdown, 1) <= 0; }

static void *counted_alloc(void *user, size_t bytes) {
    (void)user;
    if (refuse_now()) return NULL;
    void *p = malloc(bytes);
    if (p) atomic_fetch_add(&n_live, 1);
    return p;
}

static void *counted_resize(void *user, void *p, size_t bytes) {
    (void)user;
    if (refuse_now()) return NULL;
    void *q = realloc(p, bytes);
    if (q && !p) atomic_fetch_add(&n_live, 1);
    return q;
}

static void counted_release(void *user, void *p) {
    (void)user;
    if (p) atomic_fetch_sub(&n_live, 1);
    free(p);
}

/* jansson reports some failed allocations as syntax errors: any status is accepted for them. */
static atomic_bool json_was_refused;
static void *json_alloc(size_t bytes) {
    void *p = counted_alloc(NULL, bytes);
    if (!p) atomic_store(&json_was_refused, true);
    return p;
}
static void json_release(void *p) { counted_release(NULL, p); }

typedef struct text_sink {
    char text[256];
    size_t len;
} text_sink;

static bool collect(void *user, int32_t id, const char *text, size_t len) {
    (void)id;
    text_sink *t = user;
    if (len < sizeof t->text - t->len) {
        memcpy(t->text + t->len, text, len);
        t->len += len;
    }
    return true;
}

typedef struct engine {
    ag_backend *backend;
    ag_model *model;
    ag_tokenizer *tokenizer;
    ag_session *session;
    ag_sampler *sampler;
    ag_ids ids;
} engine;

static ag_status set_up_from(engine *e, const char *path, ag_error *err) {
    ag_backend_params bp = {.n_threads = n_threads};
    ag_status st = ag_backend_create(&bp, &e->backend, err);
    const ag_model_params mp = {.weights = weights};
    if (st == AG_OK) st = ag_model_load(e->backend, path, &mp, &e->model, err);
    if (st == AG_OK) st = ag_tokenizer_load(path, &e->tokenizer, err);
    ag_session_params sp = ag_session_defaults();
    sp.prefill_chunk = 4;
    sp.eviction.policy = ag_eviction_policy_find("h2o");
    if (st == AG_OK) st = ag_session_create(e->model, &sp, &e->session, err);
    const ag_logit_bias bias = {5, 0.5f};
    ag_sampler_params p = ag_sampler_defaults();
    p.logit_bias = &bias;
    p.n_logit_bias = 1;
    if (st == AG_OK) st = ag_sampler_create(&p, TINY_VOCAB, &e->sampler, err);
    return st;
}

static ag_status tell(engine *e, text_sink *out, ag_error *err) {
    static const char prompt[] = "the king and the well";
    static const char *const stops[] = {"never said"};
    ag_status st =
        ag_tokenizer_encode(e->tokenizer, prompt, strlen(prompt), AG_ENCODE_BOS, &e->ids, err);
    if (st != AG_OK) return st;
    ag_generate_params p = ag_generate_defaults();
    p.max_tokens = 8;
    p.ignore_eos = true;
    p.sampler = e->sampler;
    p.tokenizer = e->tokenizer;
    p.stop = stops;
    p.n_stop = 1;
    p.on_token = collect;
    p.on_token_user = out;
    return ag_session_generate(e->session, e->ids.data, e->ids.n, &p, NULL, err);
}

/* A second session that writes where both have been. */
static ag_status fork_and_decode(engine *e, ag_error *err) {
    ag_session *fork;
    ag_status st = ag_session_fork(e->session, &fork, err);
    if (st == AG_OK) st = ag_session_decode(fork, 5, err);
    if (st == AG_OK) st = ag_session_decode(e->session, 6, err);
    ag_session_destroy(fork);
    return st;
}

/* Saves the session to a file and restores it, replacing its state. */
static ag_status save_and_restore(engine *e, ag_error *err) {
    ag_ids ids = {0};
    ag_status st = ag_session_save(e->session, saved_path, e->tokenizer, NULL, 0, err);
    if (st == AG_OK) st = ag_session_restore(e->session, saved_path, e->tokenizer, &ids, err);
    ag_ids_free(&ids);
    return st;
}

static void tear_down(engine *e) {
    ag_ids_free(&e->ids);
    ag_sampler_destroy(e->sampler);
    ag_session_destroy(e->session);
    ag_tokenizer_destroy(e->tokenizer);
    ag_model_destroy(e->model);
    ag_backend_destroy(e->backend);
}

static ag_status whole_run(text_sink *out, ag_error *err) {
    engine e = {0};
    ag_status st = set_up_from(&e, model_dir, err);
    if (st == AG_OK) st = tell(&e, out, err);
    if (st == AG_OK) st = fork_and_decode(&e, err);
    if (st == AG_OK) st = save_and_restore(&e, err);
    tear_down(&e);
    return st;
}

typedef ag_status (*run_fn)(text_sink *out, ag_error *err);

/* Fails one allocation in each run: the first, then every step-th. */
static void fail_each_allocation(run_fn run, long long step) {
    text_sink want = {.len = 0};
    ag_error err;
    atomic_store(&countdown, 1LL << 40);
    assert_int_equal(run(&want, &err), AG_OK);
    long long total = (1LL << 40) - atomic_load(&countdown);
    assert_true(total > 100);
    print_message("%lld allocations\n", total);
    for (long long n = 0; n < total; n += step) {
        text_sink have = {.len = 0};
        memset(&err, 0, sizeof err);
        atomic_store(&json_was_refused, false);
        atomic_store(&countdown, n);
        ag_status st = run(&have, &err);
        if (atomic_load(&n_live)) fail_msg("allocation %lld: %lld left", n, atomic_load(&n_live));
        if (st == AG_OK) fail_msg("allocation %lld failed and nobody noticed", n);
        if (st != AG_NOMEM && !atomic_load(&json_was_refused))
            fail_msg("allocation %lld: %s (%s)", n, ag_status_name(st), err.msg);
        if (!err.msg[0]) fail_msg("allocation %lld: no message", n);
    }
    text_sink again = {.len = 0};
    atomic_store(&countdown, 1LL << 40);
    assert_int_equal(run(&again, &err), AG_OK);
    assert_int_equal(again.len, want.len);
    assert_memory_equal(again.text, want.text, want.len);
}

static void every_failing_allocation_is_one_clean_error(void **state) {
    (void)state;
    fail_each_allocation(whole_run, 1);
    weights = AG_WEIGHTS_MIX;
    fail_each_allocation(whole_run, takes_all ? 1 : 7);
    weights = AG_Q8_0;
    /* With a second thread, for which a tiny model waits most of the time. */
    n_threads = 2;
    fail_each_allocation(whole_run, takes_all ? 5 : 29);
    n_threads = 1;
}

/* ---- models whose layers keep a state, share keys and values, or have experts ---- */

static const char *hybrid_dir;

static ag_status hybrid_run(text_sink *out, ag_error *err) {
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11};
    engine e = {0};
    ag_backend_params bp = {.n_threads = n_threads};
    ag_session_params sp = ag_session_defaults();
    sp.prefill_chunk = 4;
    ag_status st = ag_backend_create(&bp, &e.backend, err);
    const ag_model_params mp = {.weights = weights};
    if (st == AG_OK) st = ag_model_load(e.backend, hybrid_dir, &mp, &e.model, err);
    if (st == AG_OK) st = ag_session_create(e.model, &sp, &e.session, err);
    if (st == AG_OK) st = ag_session_prefill(e.session, ids, 7, NULL, NULL, err);
    if (st == AG_OK) st = fork_and_decode(&e, err);
    if (st == AG_OK) st = save_and_restore(&e, err);
    if (st == AG_OK) st = ag_session_decode(e.session, 12, err);
    if (st == AG_OK) memcpy(out->text, ag_session_logits(e.session), out->len = sizeof out->text);
    tear_down(&e);
    return st;
}

static void runs_hybrid_models_without_leaks(void **state) {
    (void)state;
    static const char *const dirs[] = {"lfm2", "qwen3.5", "gemma4", "qwen2-moe", "gpt-oss-mxfp4"};
    char path[512];
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        snprintf(path, sizeof path, AG_GOLDEN_MODELS "/%s", dirs[i]);
        hybrid_dir = path;
        fail_each_allocation(hybrid_run, 7);
        weights = AG_WEIGHTS_MIX;
        fail_each_allocation(hybrid_run, takes_all ? 7 : 53);
        weights = AG_Q8_0;
    }
}

/* ---- models in one file, whose matrices are not converted ---- */

static void put_gguf(char *path, size_t cap, const char *type) {
    ag_error err;
    const ag_quantize_params params = {.type = type, .n_threads = 1, .overwrite = true};
    snprintf(path, cap, "%s/%s.gguf", model_dir, type);
    atomic_store(&countdown, 1LL << 40);
    if (ag_quantize(model_dir, path, &params, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
}

static ag_status gguf_run(text_sink *out, ag_error *err) {
    engine e = {0};
    ag_status st = set_up_from(&e, gguf_path, err);
    if (st == AG_OK) st = tell(&e, out, err);
    tear_down(&e);
    return st;
}

static void loads_gguf_files_without_leaks(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "q8_0"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        put_gguf(gguf_path, sizeof gguf_path, types[i]);
        weights = i ? AG_WEIGHTS_AUTO : AG_Q8_0; /* the second: as they are */
        fail_each_allocation(gguf_run, 1);
        weights = AG_Q8_0;
        unlink(gguf_path);
    }
}

static int prepare(void **state) {
    (void)state;
    const tiny_model m = {.dtype = "BF16", .with_tokenizer = true};
    if (!tiny_model_write(&m, model_dir, sizeof model_dir)) return 1;
    snprintf(saved_path, sizeof saved_path, "%s/saved", model_dir);
    ag_set_allocator(&(ag_allocator){counted_alloc, counted_resize, counted_release, NULL});
    json_set_alloc_funcs(json_alloc, json_release);
    return 0;
}

static int clean_up(void **state) {
    (void)state;
    unlink(saved_path);
    tiny_model_remove(model_dir);
    return 0;
}

int main(int argc, char **argv) {
    takes_all = argc > 1 && strcmp(argv[1], "all") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_is_one_clean_error),
        cmocka_unit_test(runs_hybrid_models_without_leaks),
        cmocka_unit_test(loads_gguf_files_without_leaks),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
