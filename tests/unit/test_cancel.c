/* SPDX-License-Identifier: Apache-2.0 */
/* ag_session_cancel(): ends one call, and the session continues as if that call had not been made.
 */
#include "support/without_matrix_units.h"

#include <antigravity/antigravity.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#define MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"
enum { N = 48, CHUNK = 8 };

static ag_backend *backend;
static ag_model *model;
static int32_t ids[N];

static int load(void **state) {
    (void)state;
    without_matrix_units();
    for (int i = 0; i < N; i++) ids[i] = i * 7 % 300 + 3;
    ag_backend_params params = {.n_threads = 2};
    if (ag_backend_create(&params, &backend, NULL) != AG_OK) return 1;
    return ag_model_load(backend, MODEL, NULL, &model, NULL) != AG_OK;
}

static int unload(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static ag_session *make(void) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 256;
    p.prefill_chunk = CHUNK;
    ag_session *s;
    assert_int_equal(ag_session_create(model, &p, &s, NULL), AG_OK);
    return s;
}

static void same_logits(const ag_session *a, const ag_session *b) {
    assert_non_null(ag_session_logits(a));
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b),
                        ag_model_get_info(model)->n_vocab * sizeof(float));
}

/* Feeds the rest of the text and compares with a session that was never cancelled. */
static void goes_on(ag_session *s) {
    ag_session *plain = make();
    uint32_t at = ag_session_position(s);
    assert_int_equal(ag_session_prefill(plain, ids, N, NULL, NULL, NULL), AG_OK);
    assert_int_equal(ag_session_prefill(s, ids + at, N - at, NULL, NULL, NULL), AG_OK);
    assert_int_equal(ag_session_position(s), N);
    same_logits(s, plain);
    ag_session_destroy(plain);
}

static void cancels_the_next_call_when_none_runs(void **state) {
    (void)state;
    ag_error err;
    ag_session *s = make(), *other = make();
    ag_session_cancel(s);
    ag_session_cancel(s);
    assert_int_equal(ag_session_prefill(s, ids, N, NULL, NULL, &err), AG_CANCELLED);
    assert_int_equal(err.status, AG_CANCELLED);
    assert_int_equal(ag_session_position(s), 0);
    goes_on(s);
    ag_session_cancel(s);
    assert_int_equal(ag_session_decode(s, 5, NULL), AG_CANCELLED);
    assert_int_equal(ag_session_position(s), N);
    assert_non_null(ag_session_logits(s));
    assert_int_equal(ag_session_prefill(other, ids, 1, NULL, NULL, NULL), AG_OK);
    ag_session *both[] = {s, other};
    const int32_t next[] = {5, 6};
    ag_session_cancel(other);
    assert_int_equal(ag_session_decode_batch(both, next, 2, NULL), AG_CANCELLED);
    assert_int_equal(ag_session_position(s), N);
    assert_int_equal(ag_session_decode_batch(both, next, 2, NULL), AG_OK);
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static bool cancel_after_two(void *user, uint64_t done, uint64_t total) {
    (void)total;
    if (done == 2 * CHUNK) ag_session_cancel(user);
    return true;
}

static void keeps_full_chunks_consumed(void **state) {
    (void)state;
    ag_session *s = make();
    assert_int_equal(ag_session_prefill(s, ids, N, cancel_after_two, s, NULL), AG_CANCELLED);
    assert_int_equal(ag_session_position(s), 2 * CHUNK);
    goes_on(s);
    ag_session_destroy(s);
}

static bool cancel_at_third(void *user, int32_t id, const char *text, size_t len) {
    static int n;
    (void)id, (void)text, (void)len;
    if (++n == 3) ag_session_cancel(user);
    return true;
}

static void generation_ends_as_cancelled(void **state) {
    (void)state;
    ag_session *s = make();
    ag_sampler_params greedy = ag_sampler_defaults();
    greedy.temperature = 0;
    ag_generate_params p = ag_generate_defaults();
    ag_generate_stats stats;
    int32_t n_vocab = (int32_t)ag_model_get_info(model)->n_vocab;
    assert_int_equal(ag_sampler_create(&greedy, n_vocab, &p.sampler, NULL), AG_OK);
    p.ignore_eos = true;
    p.on_token = cancel_at_third;
    p.on_token_user = s;
    assert_int_equal(ag_session_generate(s, ids, 10, &p, &stats, NULL), AG_OK);
    assert_int_equal(stats.finish, AG_FINISH_CANCELLED);
    assert_int_equal(stats.n_generated, 3);
    assert_int_equal(ag_session_position(s), 12); /* the third token was chosen, but not consumed */
    ag_session_cancel(s);
    assert_int_equal(ag_session_generate(s, ids, 10, &p, &stats, NULL), AG_OK);
    assert_int_equal(stats.finish, AG_FINISH_CANCELLED);
    assert_int_equal(stats.n_generated, 0);
    ag_sampler_destroy(p.sampler);
    ag_session_destroy(s);
}

static atomic_bool done;

static void *cancel_until_done(void *session) {
    while (!atomic_load(&done)) ag_session_cancel(session);
    return NULL;
}

static void another_thread_cancels_at_any_time(void **state) {
    (void)state;
    ag_session *s = make();
    pthread_t thread;
    atomic_store(&done, false);
    assert_int_equal(pthread_create(&thread, NULL, cancel_until_done, s), 0);
    ag_status st = AG_OK;
    for (int i = 0; i < 1000 && st == AG_OK; i++) {
        ag_session_reset(s);
        st = ag_session_prefill(s, ids, N, NULL, NULL, NULL);
    }
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    assert_int_equal(st, AG_CANCELLED);
    if (ag_session_prefill(s, ids, 1, NULL, NULL, NULL) == AG_OK) ag_session_reset(s);
    goes_on(s);
    ag_session_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancels_the_next_call_when_none_runs),
        cmocka_unit_test(keeps_full_chunks_consumed),
        cmocka_unit_test(generation_ends_as_cancelled),
        cmocka_unit_test(another_thread_cancels_at_any_time),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
