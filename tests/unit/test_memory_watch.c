/* SPDX-License-Identifier: Apache-2.0 */
/* A session under memory pressure. The test controls the system's signals and the clock. */
#include <antigravity/expert.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MB = 1 << 20 };

static ag_backend *backend;
static ag_model *model;

typedef struct machine {
    uint64_t now_ms, available;
    size_t n_evictions, n_read;
    uint64_t last_ms;
    bool too_often, soft_waits;
    ag_eviction seen;
    size_t before, resident_fell;
} machine;

static size_t anonymous(void) {
    ag_memory_usage u;
    return ag_process_memory(&u) == AG_OK ? u.anonymous : 0;
}

static void read_signals(void *user, uint64_t now_ms, ag_memory_signals *out) {
    machine *m = user;
    (void)now_ms;
    m->n_read++;
    m->before = anonymous();
    *out = (ag_memory_signals){.has_available = true, .available = m->available};
}

static uint64_t clock_ms(void *user) { return ((machine *)user)->now_ms; }

static void note(void *user, const ag_eviction *e) {
    machine *m = user;
    if (e->reason != AG_EVICTION_MEMORY) return;
    size_t now = anonymous();
    m->resident_fell = m->before > now ? m->before - now : 0;
    if (m->n_evictions && m->now_ms - m->last_ms < 10000) m->too_often = true;
    m->n_evictions++;
    m->last_ms = m->now_ms;
    m->seen = *e;
}

static int load(void **state) {
    (void)state;
    ag_error err;
    ag_backend_params bp = {.n_threads = 1};
    if (ag_backend_create(&bp, &backend, &err) != AG_OK) return 1;
    return ag_model_load(backend, AG_SOURCE_DIR "/models/demo", NULL, &model, &err) != AG_OK;
}

static int unload(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static ag_session *make(machine *m, const char *policy) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    /* The system counts pages per thread and sums them rarely, so the test measures megabytes. */
    p.k_type = p.v_type = AG_F32;
    p.eviction.policy = policy ? ag_eviction_policy_find(policy) : NULL;
    p.eviction.memory.threshold_bytes = 256 * (uint64_t)MB;
    p.eviction.memory.read = read_signals;
    p.eviction.memory.clock_ms = clock_ms;
    p.eviction.memory.user = m;
    p.eviction.memory.soft_waits = m->soft_waits;
    p.eviction.on_eviction = note;
    p.eviction.on_eviction_user = m;
    if (policy) p.eviction.budget_tokens = 1900;
    if (ag_session_create(model, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static void prefill(ag_session *s, size_t n) {
    int32_t *ids = malloc(n * sizeof *ids);
    ag_error err;
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 37 % 4000);
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    free(ids);
}

static void decode(ag_session *s) {
    ag_error err;
    if (ag_session_decode(s, 77, &err) != AG_OK) fail_msg("%s", err.msg);
}

static void pressure_evicts_at_once_and_returns_pages(void **state) {
    (void)state;
    for (size_t i = 0; ag_eviction_policy_at(i); i++) {
        /* No policy instead of none, which means keydiff. */
        const char *name = i ? ag_eviction_policy_at(i)->name : NULL;
        machine m = {.now_ms = 50000, .available = 900 * (uint64_t)MB};
        ag_session *s = make(&m, name);
        /* Counts full blocks only, since a partly used block is not entirely resident. tova
         * first consumes a token as its query. */
        bool asks = name && !strcmp(name, "tova");
        prefill(s, asks ? 1022 : 1023);
        decode(s);
        assert_int_equal(m.n_evictions, 0);
        m.available = 50 * (uint64_t)MB;
        m.now_ms += 100;
        decode(s);
        assert_int_equal(m.n_evictions, 1);
        assert_int_equal(m.seen.level, AG_PRESSURE_CRITICAL);
        assert_string_equal(m.seen.policy, name ? name : "keydiff");
        assert_int_equal(m.seen.n_kept, 256);
        assert_true(m.seen.bytes_returned > 7 * MB);
        if (m.resident_fell < m.seen.bytes_returned / 10 * 9) {
            fail_msg("%s: %zu bytes returned, %zu less resident", m.seen.policy,
                     m.seen.bytes_returned, m.resident_fell);
        }
        assert_int_equal(ag_session_memory_pressure(s), AG_PRESSURE_CRITICAL);
        ag_session_destroy(s);
    }
}

/* The application handles soft pressure; harder pressure evicts at once. */
static void soft_pressure_waits_when_configured(void **state) {
    (void)state;
    machine m = {.now_ms = 50000, .available = 900 * (uint64_t)MB, .soft_waits = true};
    ag_session *s = make(&m, NULL);
    prefill(s, 1022);
    m.available = 200 * (uint64_t)MB;
    m.now_ms += 100;
    decode(s);
    assert_int_equal(m.n_evictions, 0);
    assert_int_equal(ag_session_memory_pressure(s), AG_PRESSURE_SOFT);
    m.available = 100 * (uint64_t)MB;
    m.now_ms += 100;
    decode(s);
    assert_int_equal(m.n_evictions, 1);
    assert_int_equal(m.seen.level, AG_PRESSURE_HARD);
    ag_session_destroy(s);
}

static void evicts_once_a_period_over_1000_tokens(void **state) {
    (void)state;
    machine m = {.now_ms = 0, .available = 100 * (uint64_t)MB};
    ag_session *s = make(&m, "streaming");
    prefill(s, 600);
    for (int i = 0; i < 1000; i++) {
        m.now_ms += 50;
        m.available = (i % 3 ? 100 : 50) * (uint64_t)MB;
        decode(s);
    }
    assert_false(m.too_often);
    assert_true(m.n_evictions >= 2 && m.n_evictions <= 6);
    assert_true(m.n_read <= 1000 * 50 / 100 + 3);
    ag_session_destroy(s);
}

static void restores_the_budget_after_pressure(void **state) {
    (void)state;
    machine m = {.now_ms = 0, .available = 200 * (uint64_t)MB};
    ag_session *s = make(&m, "streaming");
    prefill(s, 512);
    m.now_ms += 100;
    decode(s); /* 384 from now on */
    for (int i = 0; i < 100; i++) decode(s);
    assert_true(ag_kv_cache_length(ag_session_kv_cache(s)) <= 384 + 64);
    m.available = 4000 * (uint64_t)MB;
    for (int i = 0; i < 12; i++) {
        m.now_ms += 1000;
        decode(s);
    }
    assert_int_equal(ag_session_memory_pressure(s), AG_PRESSURE_NORMAL);
    prefill(s, 600);
    assert_true(ag_kv_cache_length(ag_session_kv_cache(s)) > 900);
    ag_session_destroy(s);
}

static void accepts_a_hint_from_the_application(void **state) {
    (void)state;
    machine m = {.now_ms = 0, .available = 4000 * (uint64_t)MB};
    ag_session *s = make(&m, NULL);
    prefill(s, 1024);
    ag_session_memory_hint(s, AG_PRESSURE_HARD);
    decode(s);
    assert_int_equal(m.n_evictions, 1);
    assert_true(m.seen.level == AG_PRESSURE_HARD && m.seen.n_kept <= 513);
    ag_session_destroy(s);
}

static void rejects_prompts_when_critical_at_minimal_size(void **state) {
    (void)state;
    machine m = {.now_ms = 0, .available = MB};
    ag_session *s = make(&m, "streaming");
    ag_error err;
    prefill(s, 400);
    for (int i = 0; i < 10; i++) {
        m.now_ms += 10000;
        decode(s);
    }
    int32_t ids[50] = {0};
    ag_status st = ag_session_prefill(s, ids, 50, NULL, NULL, &err);
    assert_int_equal(st, AG_NOMEM);
    assert_non_null(strstr(err.msg, "short of memory"));
    decode(s); /* the conversation continues */
    ag_session_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pressure_evicts_at_once_and_returns_pages),
        cmocka_unit_test(soft_pressure_waits_when_configured),
        cmocka_unit_test(evicts_once_a_period_over_1000_tokens),
        cmocka_unit_test(restores_the_budget_after_pressure),
        cmocka_unit_test(accepts_a_hint_from_the_application),
        cmocka_unit_test(rejects_prompts_when_critical_at_minimal_size),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
