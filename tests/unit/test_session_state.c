/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_session_state [BACKEND [short]]
 *
 * Sessions of models whose layers have a state, or share keys and values: after any operation the
 * logits are those of a session that has consumed the same tokens and nothing else. */
#include "support/named_backend.h"
#include "support/stride.h"
#include "support/without_matrix_units.h"

#include <antigravity/expert.h>
#include <antigravity/plan.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#define MODELS AG_GOLDEN_MODELS "/"
/* The last model has no state: some of its layers use keys and values of others. */
static const char *const model_dirs[] = {MODELS "lfm2", MODELS "qwen3.5", MODELS "gemma4"};
enum { N_MODELS = 3, WITH_STATE = 2, CHUNK = 96, MOST = 400, ROLLBACK = 64, KINDS = 9 };

static const char *backend_name; /* NULL: the default */
static bool is_short;            /* fewer steps, for slow devices */
static bool takes_all;           /* "test_session_state all": longest walks */
static ag_backend *backend;
static ag_model *model;
static size_t n_vocab;
/* Results are equal to the bit. Otherwise slots of layers with a window move, and sums round
 * differently. */
static bool is_exact;
static char saved[] = "/tmp/ag_state_XXXXXX";

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static void use(size_t i) {
    ag_error err;
    ag_model_destroy(model);
    model = NULL;
    ag_model_params p = ag_model_defaults();
    p.weights = AG_F32;
    must(ag_model_load(backend, model_dirs[i], &p, &model, &err), &err);
    n_vocab = ag_model_get_info(model)->n_vocab;
    is_exact = !backend_name && i < WITH_STATE;
}

static ag_session *make(void) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = MOST;
    p.prefill_chunk = CHUNK;
    p.k_type = p.v_type = AG_F32;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

/* Session and the tokens it has consumed. */
typedef struct walker {
    ag_session *session, *control;
    int32_t ids[MOST];
    size_t n;
    bool has_logits;
} walker;

static void same_row(const float *have, const float *want) {
    assert_non_null(have);
    if (is_exact) assert_memory_equal(have, want, n_vocab * sizeof *have);
    for (size_t i = 0; i < n_vocab; i++) {
        if (!(fabsf(have[i] - want[i]) < 2e-4f))
            fail_msg("logit %zu: %g, alone %g", i, (double)have[i], (double)want[i]);
    }
}

/* The control session reads all tokens from the start. */
static void check(walker *w) {
    ag_error err;
    assert_int_equal(ag_session_position(w->session), w->n);
    if (!w->n || !w->has_logits) return;
    ag_session_reset(w->control);
    must(ag_session_prefill(w->control, w->ids, w->n, NULL, NULL, &err), &err);
    same_row(ag_session_logits(w->session), ag_session_logits(w->control));
}

static int32_t some_id(void) { return 3 + rand() % 500; }

static size_t append(walker *w, size_t n) {
    if (n > MOST - w->n) n = MOST - w->n;
    for (size_t i = 0; i < n; i++) w->ids[w->n + i] = some_id();
    return n;
}

static void read_some(walker *w, size_t most) {
    ag_error err;
    const size_t n = append(w, 1 + (size_t)rand() % most);
    if (!n) return;
    must(ag_session_prefill(w->session, w->ids + w->n, n, NULL, NULL, &err), &err);
    w->n += n;
    w->has_logits = true;
}

static void go_back(walker *w, size_t position) {
    ag_error err;
    if (position != w->n) w->has_logits = false;
    must(ag_session_truncate(w->session, (uint32_t)position, &err), &err);
    w->n = position;
}

/* Verifies a draft and rejects part of it. */
static void verify_some(walker *w) {
    ag_error err;
    const size_t n = append(w, 1 + (size_t)rand() % ROLLBACK), before = w->n;
    if (!n) return;
    const ag_step_item item = {.session = w->session,
                               .ids = w->ids + w->n,
                               .n = n,
                               .phase = AG_PHASE_VERIFY,
                               .logits = AG_LOGITS_LAST};
    must(ag_session_step(&item, 1, &err), &err);
    w->n += n;
    w->has_logits = true;
    check(w);
    go_back(w, before + (size_t)rand() % (n + 1));
}

static void go_back_some(walker *w) {
    const uint32_t oldest = ag_session_oldest_reachable(w->session);
    ag_error err;
    assert_true(oldest <= w->n);
    if (oldest > 1) {
        const uint32_t at = 1 + (uint32_t)rand() % (oldest - 1);
        char text[32];
        if (ag_session_truncate(w->session, at, &err) == AG_OK) { /* an earlier snapshot exists */
            w->n = at;
            w->has_logits = false;
            return;
        }
        snprintf(text, sizeof text, " %u", oldest);
        assert_non_null(strstr(err.msg, text));
        assert_int_equal(ag_session_position(w->session), w->n);
    }
    go_back(w, oldest + (size_t)rand() % (w->n - oldest + 1));
}

static void go_on_as_a_fork(walker *w) {
    ag_session *fork;
    ag_error err;
    must(ag_session_fork(w->session, &fork, &err), &err);
    const int32_t other = some_id(); /* the other session does not see this token */
    if (w->n < MOST) must(ag_session_decode(rand() % 2 ? w->session : fork, other, &err), &err);
    if (ag_session_position(fork) == w->n) {
        ag_session_destroy(w->session);
        w->session = fork;
    } else {
        ag_session_destroy(fork);
    }
}

static void save_and_restore(walker *w) {
    ag_error err;
    ag_ids ids = {0};
    must(ag_session_save(w->session, saved, NULL, w->ids, w->n, &err), &err);
    ag_session_destroy(w->session);
    w->session = make();
    must(ag_session_restore(w->session, saved, NULL, &ids, &err), &err);
    assert_int_equal(ids.n, w->n);
    ag_ids_free(&ids);
}

static bool give_up(void *user, size_t i, const float *logits) {
    (void)logits;
    return i < *(const size_t *)user;
}

/* One step fails after its pass, another is cancelled before: neither consumes a token. */
static void fail_some(walker *w) {
    ag_error err;
    size_t last = (size_t)rand() % 3;
    const size_t n = append(w, 4 + (size_t)rand() % (CHUNK - 4));
    if (n < 4) return;
    const ag_step_item item = {.session = w->session,
                               .ids = w->ids + w->n,
                               .n = n,
                               .phase = AG_PHASE_DECODE,
                               .logits = AG_LOGITS_ALL,
                               .row = give_up,
                               .row_user = &last};
    assert_int_equal(ag_session_step(&item, 1, &err), AG_CANCELLED);
    w->has_logits = false;
    ag_session_cancel(w->session);
    assert_int_equal(ag_session_step(&item, 1, &err), AG_CANCELLED);
}

/* Runs random operations; a short walk takes each kind in turn. */
static void walk(size_t n_steps) {
    walker w = {.session = make(), .control = make()};
    for (size_t i = 0; i < n_steps; i++) {
        switch (is_short ? i % KINDS : (size_t)rand() % KINDS) {
        case 0:
        case 1:
            read_some(&w, 2 * CHUNK);
            break;
        case 2:
        case 3:
            for (int k = rand() % 40; k > 0; k--) read_some(&w, 1);
            break;
        case 4:
            verify_some(&w);
            break;
        case 5:
            go_back_some(&w);
            break;
        case 6:
            go_on_as_a_fork(&w);
            break;
        case 7:
            save_and_restore(&w);
            break;
        default:
            fail_some(&w);
        }
        check(&w);
        if (w.n > MOST - 20 || rand() % 40 == 0) {
            if (rand() % 2) ag_session_reset(w.session);
            else must(ag_session_truncate(w.session, 0, NULL), NULL);
            w.n = 0;
        }
    }
    ag_session_destroy(w.session);
    ag_session_destroy(w.control);
}

static void state_depends_only_on_the_tokens(void **state) {
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        use(m);
        srand(7);
        walk(is_short ? KINDS : backend_name ? 25 : test_rounds(takes_all ? 150 : 60));
    }
}

static void truncates_any_reachable_tokens(void **state) {
    (void)state;
    use(1);
    walker w = {.session = make(), .control = make()};
    for (int i = 0; i < (is_short ? 15 : 60); i++) {
        read_some(&w, i % 3 ? 5 : CHUNK);
        const uint32_t oldest = ag_session_oldest_reachable(w.session);
        assert_true(oldest + ROLLBACK <= w.n || oldest == 0);
        if (w.n > MOST - CHUNK) go_back(&w, 0);
    }
    ag_session_destroy(w.session);
    ag_session_destroy(w.control);
}

static void batched_sessions_keep_separate_states(void **state) {
    (void)state;
    enum { N = 3 };
    for (size_t m = 0; m < N_MODELS; m++) {
        use(m);
        srand(3);
        walker w[N];
        ag_error err;
        for (int i = 0; i < N; i++) w[i] = (walker){.session = make(), .control = make()};
        for (int round = 0; round < (backend_name ? 4 : 12); round++) {
            ag_step_item items[N] = {{0}};
            for (int i = 0; i < N; i++) {
                const size_t n = append(&w[i], 1 + (size_t)rand() % 20);
                items[i] = (ag_step_item){.session = w[i].session,
                                          .ids = w[i].ids + w[i].n,
                                          .n = n,
                                          .phase = round % 3 ? AG_PHASE_DECODE : AG_PHASE_VERIFY,
                                          .logits = AG_LOGITS_LAST};
            }
            must(ag_session_step(items, N, &err), &err);
            for (int i = 0; i < N; i++) {
                w[i].n += items[i].n;
                w[i].has_logits = true;
                check(&w[i]);
                if (round % 3 == 0) go_back(&w[i], w[i].n - (size_t)rand() % items[i].n);
            }
        }
        for (int i = 0; i < N; i++) {
            ag_session_destroy(w[i].session);
            ag_session_destroy(w[i].control);
        }
    }
}

static void rejects_operations_that_a_state_cannot_do(void **state) {
    (void)state;
    use(0);
    walker w = {.session = make(), .control = make()};
    ag_error err;
    const size_t n = append(&w, ROLLBACK + 1);
    const ag_step_item item = {
        .session = w.session, .ids = w.ids, .n = n, .phase = AG_PHASE_VERIFY};
    assert_int_equal(ag_session_step(&item, 1, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "65 tokens to verify"));
    assert_int_equal(ag_session_follow_cache(w.session, &err), AG_INVALID);
    read_some(&w, 5);
    assert_int_equal(ag_session_save(w.session, saved, NULL, NULL, 0, &err), AG_OK);
    ag_session_destroy(w.session);
    ag_session_destroy(w.control);
    use(1); /* restores into another model */
    ag_session *other = make();
    assert_int_equal(ag_session_restore(other, saved, NULL, NULL, &err), AG_UNSUPPORTED);
    ag_session_destroy(other);
}

static void detects_a_damaged_state(void **state) {
    (void)state;
    use(1);
    walker w = {.session = make(), .control = make()};
    ag_error err;
    read_some(&w, CHUNK);
    must(ag_session_save(w.session, saved, NULL, NULL, 0, &err), &err);
    FILE *f = fopen(saved, "r+b");
    assert_non_null(f);
    fseek(f, -100, SEEK_END); /* inside the state */
    const int c = fgetc(f);
    fseek(f, -100, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
    assert_int_equal(ag_session_restore(w.session, saved, NULL, NULL, &err), AG_FORMAT);
    assert_int_equal(truncate(saved, 2000), 0);
    assert_int_equal(ag_session_restore(w.session, saved, NULL, NULL, &err), AG_FORMAT);
    check(&w);
    ag_session_destroy(w.session);
    ag_session_destroy(w.control);
}

static void shared_keys_and_values_count_once(void **state) {
    (void)state;
    use(2);
    const ag_model_info *info = ag_model_get_info(model);
    ag_session *s = make();
    ag_session_plan plan;
    ag_error err;
    uint32_t n_own = 0;
    for (uint32_t k = 0; k < info->n_layer_kinds; k++) n_own += info->layer_kinds[k].n_kv_layers;
    const ag_kv_params *kv = ag_kv_cache_params(ag_session_kv_cache(s));
    assert_int_equal(info->n_layers, 8);
    assert_int_equal(n_own, 4);
    assert_int_equal(kv->n_layers, 4);
    const uint32_t dims[] = {32, 32, 32, 64}, windows[] = {24, 24, 24, 0};
    for (uint32_t l = 0; l < 4; l++) {
        assert_int_equal(kv->layers[l].head_dim, dims[l]);
        assert_int_equal(kv->layers[l].window, windows[l]);
    }
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = MOST;
    p.prefill_chunk = CHUNK;
    p.k_type = p.v_type = AG_F32;
    must(ag_session_plan_memory(info, &p, &plan, &err), &err);
    assert_int_equal(plan.kv_bytes, ag_kv_cache_plan_bytes(kv));
    assert_int_equal(plan.state_bytes, 0);
    ag_session_destroy(s);
}

/* The plan matches the state to the byte. */
static void plan_includes_the_state(void **state) {
    (void)state;
    for (size_t m = 0; m < WITH_STATE; m++) {
        use(m);
        ag_session_plan plan;
        ag_memory_plan all;
        ag_error err;
        const ag_model_info *info = ag_model_get_info(model);
        ag_session *first = make();
        ag_memory *memory = ag_backend_memory(backend);
        const size_t before = ag_memory_bytes_in_use(memory);
        ag_session *s = make();
        must(ag_session_plan_memory(info, NULL, &plan, &err), &err);
        assert_true(plan.state_bytes > 0);
        assert_int_equal(plan.state_bytes, info->state_bytes);
        const size_t taken = ag_memory_bytes_in_use(memory) - before;
        assert_true(taken >= plan.state_bytes);
        assert_true(taken < plan.state_bytes + n_vocab * sizeof(float) + 4096);
        must(ag_memory_plan_make(backend, model_dirs[m], NULL, NULL, 3, &all, &err), &err);
        assert_int_equal(all.state_bytes, 3 * plan.state_bytes);
        ag_session_destroy(s);
        ag_session_destroy(first);
    }
}

static int start(void **state) {
    (void)state;
    const int fd = mkstemp(saved);
    if (fd >= 0) close(fd);
    return 0;
}

static int stop(void **state) {
    (void)state;
    unlink(saved);
    ag_model_destroy(model);
    return 0;
}

int main(int argc, char **argv) {
    takes_all = argc > 1 && strcmp(argv[1], "all") == 0;
    backend_name = argc > 1 && !takes_all ? argv[1] : NULL;
    is_short = argc > 2 && strcmp(argv[2], "short") == 0;
    without_matrix_units();
    backend = open_backend(backend_name, 2);
    if (!backend) return EXIT_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_depends_only_on_the_tokens),
        cmocka_unit_test(truncates_any_reachable_tokens),
        cmocka_unit_test(batched_sessions_keep_separate_states),
        cmocka_unit_test(rejects_operations_that_a_state_cannot_do),
        cmocka_unit_test(detects_a_damaged_state),
        cmocka_unit_test(shared_keys_and_values_count_once),
        cmocka_unit_test(plan_includes_the_state),
    };
    const int failed = cmocka_run_group_tests(tests, start, stop);
    ag_backend_destroy(backend);
    return failed;
}
