/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_session_pool [BACKEND [SESSIONS TOKENS [MODEL]]]
 *
 * Sessions of a device share one block pool: their memory is that of their slots plus 5 %, their
 * logits are those of single sessions, and freed memory returns. MODEL: a directory or file, or the
 * name of a shape, whose weights are random. Example: test_session_pool opencl 200 512
 * llama-3.2-1b. */
#include "cache/kv_cache.h"
#include "core/backend_ops.h"
#include "core/block_pool_impl.h"
#include "support/named_backend.h"

#include <antigravity/antigravity.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { DECODED = 4, CHECKED = 3 };

static const char *backend_name = "opencl";
static const char *model_name = AG_GOLDEN_MODELS "/gqa-llama3rope-sharded";
static size_t n_sessions = 24;
static uint32_t n_tokens = 60;

static ag_backend *be;
static ag_model *model;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static size_t in_use(void) { return ag_memory_bytes_in_use(ag_backend_memory(be)); }

static double mib(size_t bytes) { return (double)bytes / (1 << 20); }

static int32_t token_at(size_t session, size_t i) {
    return (int32_t)((session * 977 + i) * 2654435761u % ag_model_get_info(model)->n_vocab);
}

static ag_session *begin(void) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = 4096;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

static void read_prompt(ag_session *s, size_t number) {
    int32_t *ids = malloc(n_tokens * sizeof *ids);
    ag_error err;
    for (uint32_t i = 0; i < n_tokens - DECODED; i++) ids[i] = token_at(number, i);
    must(ag_session_prefill(s, ids, n_tokens - DECODED, NULL, NULL, &err), &err);
    free(ids);
}

static void decode(ag_session *s, size_t number, uint32_t i) {
    ag_error err;
    must(ag_session_decode(s, token_at(number, n_tokens - DECODED + i), &err), &err);
}

/* ---- memory ---- */

/* Returns the bytes and the number of slabs of all pools. */
static size_t pool_bytes(size_t *n_slabs) {
    size_t bytes = 0;
    *n_slabs = 0;
    for (const ag_block_pool *p = be->block_pools; p; p = p->next) {
        for (size_t i = 0; i < p->n_arenas; i++) bytes += ag_buffer_size(p->arenas[i]->buffer);
        *n_slabs += p->n_arenas;
        assert_true(p->n_arenas <= AG_KV_BUFFERS);
    }
    return bytes;
}

/* Checks that the pool has what the blocks need, plus at most 1/parts of it. */
static void expect_pool(ag_session *const *s, size_t parts, const char *when) {
    size_t blocks = 0, slots = 0, n = 0, n_slabs;
    const size_t pool = pool_bytes(&n_slabs);
    for (size_t i = 0; i < n_sessions; i++) {
        if (!s[i]) continue;
        const ag_kv_cache *c = ag_session_kv_cache(s[i]);
        const size_t block = ag_kv_bytes_of_tokens(ag_kv_cache_params(c), 1);
        blocks += ag_kv_cache_memory_usage_bytes(c);
        slots += block / AG_KV_BLOCK * ag_session_position(s[i]);
        n++;
    }
    print_message(
        "%s: %zu sessions, slots %.3f MiB, their blocks %.3f, the pool %.3f (%+.1f %%) in "
        "%zu slabs, all in use %.3f\n",
        when, n, mib(slots), mib(blocks), mib(pool), 100 * ((double)pool / (double)blocks - 1),
        n_slabs, mib(in_use()));
    assert_in_range(pool, blocks, blocks + blocks / parts);
}

static void expect_nothing(void) {
    size_t n_slabs;
    assert_int_equal(pool_bytes(&n_slabs), 0);
}

/* ---- logits ---- */

/* Frees half of the sessions. The others continue with one token. */
static void end_half(ag_session **s) {
    for (size_t i = 0; i < n_sessions; i += 2) {
        ag_session_destroy(s[i]);
        s[i] = NULL;
    }
    expect_pool(s, 10, "every other one has ended");
    for (size_t i = 1; i < n_sessions; i += 2) decode(s[i], i, DECODED);
}

static void expect_logits_of_one_alone(size_t number, const float *want) {
    ag_session *s = begin();
    read_prompt(s, number);
    for (uint32_t t = 0; t <= DECODED; t++) decode(s, number, t);
    const size_t bytes = ag_model_get_info(model)->n_vocab * sizeof(float);
    if (memcmp(ag_session_logits(s), want, bytes) != 0) fail_msg("other logits in %zu", number);
    ag_session_destroy(s);
}

static void memory_matches_the_slots(void **state) {
    (void)state;
    const size_t n_vocab = ag_model_get_info(model)->n_vocab;
    const size_t checked[CHECKED] = {1, n_sessions / 4 * 2 + 1, (n_sessions - 2) / 2 * 2 + 1};
    ag_session **s = calloc(n_sessions, sizeof(ag_session *));
    float *want = malloc(CHECKED * n_vocab * sizeof *want);
    assert_true(s && want);
    for (size_t i = 0; i < n_sessions; i++) {
        s[i] = begin();
        read_prompt(s[i], i);
    }
    expect_pool(s, 20, "prompts are read");
    for (uint32_t t = 0; t < DECODED; t++) {
        for (size_t i = 0; i < n_sessions; i++) decode(s[i], i, t);
    }
    expect_pool(s, 20, "all tokens are there");
    end_half(s);
    for (size_t i = 0; i < CHECKED; i++)
        memcpy(want + i * n_vocab, ag_session_logits(s[checked[i]]), n_vocab * sizeof *want);
    for (size_t i = 0; i < n_sessions; i++) ag_session_destroy(s[i]);
    expect_nothing();
    for (size_t i = 0; i < CHECKED; i++) expect_logits_of_one_alone(checked[i], want + i * n_vocab);
    expect_nothing();
    free(s);
    free(want);
}

/* ---- model ---- */

static void load(void) {
    struct stat st;
    ag_error err;
    const ag_model_params p = ag_model_defaults();
    if (stat(model_name, &st) == 0) must(ag_model_load(be, model_name, &p, &model, &err), &err);
    else must(ag_model_synthetic(be, model_name, &p, &model, &err), &err);
}

int main(int argc, char **argv) {
    if (argc > 1) backend_name = argv[1];
    if (argc > 3) {
        n_sessions = strtoul(argv[2], NULL, 10);
        n_tokens = (uint32_t)strtoul(argv[3], NULL, 10);
    }
    if (argc > 4) model_name = argv[4];
    if (n_sessions < 2 || n_tokens <= DECODED) return 2;
    be = open_backend(backend_name, 0);
    if (!be) return EXIT_SKIPPED;
    load();
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_matches_the_slots)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_model_destroy(model);
    ag_backend_destroy(be);
    return failed;
}
