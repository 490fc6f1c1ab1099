/* SPDX-License-Identifier: Apache-2.0 */
/* Compares tokens chosen from the device's candidates with those chosen from the entire row. */
#include "session/session_impl.h"
#include "unit/opencl_device.h"
#include "unit/random_filter.h"

#include <antigravity/antigravity.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"

enum { N_TOKENS = 24, N_PROMPT = 3 };

static ag_backend *backend;
static ag_model *model;
static const int32_t prompt[N_PROMPT] = {3, 40, 77};

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static ag_session *open_session(void) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 64;
    ag_session *s;
    ag_error err;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

static ag_sampler *open_sampler(const ag_sampler_params *p) {
    ag_sampler *s;
    ag_error err;
    must(ag_sampler_create(p, (int32_t)ag_model_get_info(model)->n_vocab, &s, &err), &err);
    return s;
}

static random_filter filter_of(uint32_t seed, bool rejects) {
    return make_random_filter(ag_model_get_info(model)->n_vocab, seed, rejects);
}

static void set_filter(ag_sampler *s, random_filter *f) {
    ag_error err;
    must(ag_sampler_set_filter(s, f ? &f->base : NULL, &err), &err);
}

typedef struct heard {
    int32_t ids[N_TOKENS];
    size_t n, n_on_host;
    ag_session *session;
} heard;

static bool hear(void *user, int32_t id, const char *text, size_t len) {
    heard *h = user;
    (void)text;
    (void)len;
    if (h->n < N_TOKENS) h->ids[h->n++] = id;
    h->n_on_host += h->session->logits.location == AG_LOGITS_ON_HOST;
    return true;
}

static void generate(const ag_sampler_params *p, random_filter *filter, heard *h) {
    ag_generate_params g = ag_generate_defaults();
    ag_error err;
    ag_session *s = open_session();
    g.sampler = open_sampler(p);
    set_filter(g.sampler, filter);
    g.max_tokens = N_TOKENS;
    g.ignore_eos = true;
    h->session = s;
    g.on_token = hear;
    g.on_token_user = h;
    must(ag_session_generate(s, prompt, N_PROMPT, &g, NULL, &err), &err);
    assert_non_null(ag_session_logits(s)); /* the last row has come */
    ag_sampler_destroy(g.sampler);
    ag_session_destroy(s);
}

static void check_whole_rows(const ag_sampler_params *p, random_filter *filter, const heard *h) {
    ag_error err;
    ag_session *s = open_session();
    ag_sampler *sampler = open_sampler(p);
    set_filter(sampler, filter);
    must(ag_session_prefill(s, prompt, N_PROMPT, NULL, NULL, &err), &err);
    for (size_t i = 0; i < N_PROMPT; i++) ag_sampler_accept_prompt(sampler, prompt[i]);
    for (size_t i = 0; i < N_TOKENS; i++) {
        int32_t id;
        must(ag_sampler_sample(sampler, ag_session_logits(s), &id, &err), &err);
        assert_int_equal(h->ids[i], id);
        ag_sampler_accept(sampler, id);
        must(ag_session_decode(s, id, &err), &err);
    }
    ag_sampler_destroy(sampler);
    ag_session_destroy(s);
}

static void generated_tokens_are_those_of_whole_rows(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    for (p.seed = 1; p.seed <= 3; p.seed++) {
        heard h = {.n = 0};
        p.temperature = p.seed == 3 ? 0 : 1.5f;
        p.top_k = p.seed == 2 ? 0 : 40; /* off: the row is needed as a whole */
        generate(&p, NULL, &h);
        assert_int_equal(h.n, N_TOKENS);
        check_whole_rows(&p, NULL, &h);
    }
}

/* The prompt's logits may be on the host. */
static void constrained_tokens_need_no_whole_rows(void **state) {
    (void)state;
    static const ag_logit_bias bias[] = {{11, 3}, {200, -INFINITY}};
    ag_sampler_params p = ag_sampler_defaults();
    p.repetition_penalty = 1.3f;
    p.logit_bias = bias;
    for (p.seed = 1; p.seed <= 4; p.seed++) {
        heard h = {.n = 0};
        random_filter filters[] = {filter_of((uint32_t)p.seed, p.seed > 1),
                                   filter_of((uint32_t)p.seed, p.seed > 1)};
        p.temperature = p.seed == 4 ? 0 : 1.5f;
        p.n_logit_bias = p.seed % 2 * 2;
        generate(&p, &filters[0], &h);
        assert_int_equal(h.n, N_TOKENS);
        assert_true(h.n_on_host <= 1);
        check_whole_rows(&p, &filters[1], &h);
    }
}

/* The step fails as a whole, with the error of the first mask that fails. */
static void failed_masks_fail_their_step(void **state) {
    (void)state;
    enum { N = 3 };
    ag_sampler_params p = ag_sampler_defaults();
    random_filter filters[N];
    ag_step_item items[N];
    int32_t chosen[N];
    ag_error err;
    for (size_t i = 0; i < N; i++) {
        filters[i] = filter_of((uint32_t)i, false);
        filters[i].fails_at = filters[i].n_accepted = (uint32_t)i;
        items[i] = (ag_step_item){.session = open_session(),
                                  .ids = prompt,
                                  .n = 1,
                                  .phase = AG_PHASE_DECODE,
                                  .logits = AG_LOGITS_LAST,
                                  .sampler = open_sampler(&p),
                                  .chosen = &chosen[i]};
        set_filter(items[i].sampler, &filters[i]);
    }
    for (size_t n = N; n > 0; n--) {
        err.msg[0] = 0;
        assert_int_equal(ag_session_step(items + N - n, n, &err), AG_LIMIT);
        assert_string_equal(err.msg, n == 1 ? "no mask after 2 tokens" : "no mask after 1 tokens");
        assert_int_equal(ag_session_position(items[N - 1].session), 0);
    }
    for (size_t i = 0; i < N; i++) {
        ag_sampler_destroy(items[i].sampler);
        ag_session_destroy(items[i].session);
    }
}

/* Results of a step's query must not answer a request with another mask, or with none. */
static void masks_may_change_after_a_step(void **state) {
    (void)state;
    enum { N = 2 };
    ag_sampler_params p = ag_sampler_defaults();
    random_filter filters[N];
    ag_step_item items[N];
    int32_t chosen[N], id;
    ag_error err;
    p.temperature = 0;
    for (size_t i = 0; i < N; i++) {
        items[i] = (ag_step_item){.session = open_session(),
                                  .ids = &prompt[i],
                                  .n = 1,
                                  .phase = AG_PHASE_DECODE,
                                  .logits = AG_LOGITS_LAST,
                                  .sampler = open_sampler(&p),
                                  .chosen = &chosen[i]};
        filters[i] = filter_of((uint32_t)i, false);
    }
    for (uint32_t round = 0; round < 8; round++) {
        filters[0].n_accepted = 3 + 4 * round;
        filters[1].n_accepted = 2 + 4 * round;
        set_filter(items[0].sampler, NULL);
        set_filter(items[1].sampler, &filters[1]);
        must(ag_session_step(items, N, &err), &err);
        set_filter(items[0].sampler, &filters[0]);
        filters[1].n_accepted += 4;
        for (size_t i = 0; i < N; i++) {
            must(ag_session_choose(items[i].session, items[i].sampler, &chosen[i], &err), &err);
            must(ag_session_fetch_logits(items[i].session, &err), &err);
            const float *logits = ag_session_logits(items[i].session);
            must(ag_sampler_sample(items[i].sampler, logits, &id, &err), &err);
            assert_int_equal(chosen[i], id);
        }
    }
    for (size_t i = 0; i < N; i++) {
        ag_sampler_destroy(items[i].sampler);
        ag_session_destroy(items[i].session);
    }
}

static bool see_row(void *user, size_t i, const float *logits) {
    (void)user, (void)i, (void)logits;
    return true;
}

/* Rows of a draft, whose masks follow from the tokens before them. */
static void drafts_are_chosen_with_masks(void **state) {
    (void)state;
    enum { N = 4 };
    ag_sampler_params p = ag_sampler_defaults();
    int32_t ids[N + 1] = {prompt[0]}, chosen[2][N];
    ag_error err;
    p.temperature = 0;
    for (size_t round = 0; round < 3; round++) { /* 0: one by one; 1: from entire rows */
        ag_session *s = open_session();
        ag_sampler *sampler = open_sampler(&p);
        random_filter filter = filter_of(2, false);
        set_filter(sampler, &filter);
        ag_step_item item = {.session = s,
                             .ids = ids,
                             .n = round ? N : 1,
                             .phase = AG_PHASE_VERIFY,
                             .logits = AG_LOGITS_ALL,
                             .row = round == 1 ? see_row : NULL,
                             .sampler = sampler,
                             .chosen = round ? chosen[round - 1] : &ids[1]};
        for (size_t i = 0; i < (round ? 1 : N); i++, item.ids++, item.chosen++) {
            must(ag_session_step(&item, 1, &err), &err);
            if (!round) ag_sampler_accept(sampler, *item.chosen);
        }
        if (round == 2) assert_int_equal(s->logits.location, AG_LOGITS_ON_DEVICE);
        ag_sampler_destroy(sampler);
        ag_session_destroy(s);
    }
    assert_memory_equal(chosen[0], ids + 1, sizeof chosen[0]);
    assert_memory_equal(chosen[1], ids + 1, sizeof chosen[1]);
}

/* ---- while logits are on the device, the session is given another state ---- */

typedef struct interruption {
    ag_session *session;
    const char *path; /* NULL: the session is reset */
    int n_heard;      /* tokens before it */
    int32_t id;       /* the first token that is heard afterwards; -1: none yet */
} interruption;

/* Restores or resets the session at the second token, and stops. The host has the logits that gave
 * the first token; those of the second are only on the device. */
static bool interrupt(void *user, int32_t id, const char *text, size_t len) {
    interruption *i = user;
    ag_error err;
    (void)id;
    (void)text;
    (void)len;
    if (!i->n_heard++) return true;
    assert_int_equal(i->session->logits.location, AG_LOGITS_ON_DEVICE);
    if (i->path) must(ag_session_restore(i->session, i->path, NULL, NULL, &err), &err);
    else ag_session_reset(i->session);
    return false;
}

static bool hear_first(void *user, int32_t id, const char *text, size_t len) {
    interruption *i = user;
    (void)text;
    (void)len;
    if (i->id < 0) i->id = id;
    return true;
}

static void generate_greedily(interruption *i, const int32_t *ids, size_t n,
                              bool (*on_token)(void *, int32_t, const char *, size_t)) {
    ag_sampler_params p = ag_sampler_defaults();
    ag_generate_params g = ag_generate_defaults();
    ag_error err;
    p.temperature = 0;
    p.repetition_penalty = 1.0f;
    g.sampler = open_sampler(&p);
    g.max_tokens = 3;
    g.ignore_eos = true;
    g.on_token = on_token;
    g.on_token_user = i;
    must(ag_session_generate(i->session, ids, n, &g, NULL, &err), &err);
    ag_sampler_destroy(g.sampler);
}

static int32_t largest(const float *logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < (int32_t)ag_model_get_info(model)->n_vocab; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

/* A session is saved; another one generates something else, is interrupted, and restored.
 * Its logits are then the saved ones, for the caller and for the sampler. */
static void expect_saved_logits(bool restored_at_once) {
    const size_t bytes = ag_model_get_info(model)->n_vocab * sizeof(float);
    char path[] = "/tmp/antigravity-choose-XXXXXX";
    const int fd = mkstemp(path);
    ag_error err;
    assert_true(fd >= 0);
    (void)close(fd);
    ag_session *saved = open_session();
    must(ag_session_prefill(saved, prompt, N_PROMPT, NULL, NULL, &err), &err);
    must(ag_session_save(saved, path, NULL, NULL, 0, &err), &err);
    const int32_t other[] = {9, 11}, expected = largest(ag_session_logits(saved));
    interruption i = {.session = open_session(), .path = restored_at_once ? path : NULL, .id = -1};
    generate_greedily(&i, other, 2, interrupt);
    if (!restored_at_once) {
        assert_null(ag_session_logits(i.session));
        must(ag_session_restore(i.session, path, NULL, NULL, &err), &err);
    }
    assert_non_null(ag_session_logits(i.session));
    assert_memory_equal(ag_session_logits(i.session), ag_session_logits(saved), bytes);
    generate_greedily(&i, NULL, 0, hear_first);
    assert_int_equal(i.id, expected);
    ag_session_destroy(i.session);
    ag_session_destroy(saved);
    (void)unlink(path);
}

static void device_logits_follow_the_session_state(void **state) {
    (void)state;
    expect_saved_logits(true);
    expect_saved_logits(false);
}

/* ---- several sessions in a step ---- */

enum { SESSIONS = AG_LOGIT_ROWS_DEVICE + 4, STEPS = 4 };

static bool needs_row(size_t i) { return i % 5 == 4 && i % 3; }

static ag_sampler *sampler_of(size_t i) {
    ag_sampler_params p = ag_sampler_defaults();
    p.seed = i + 1;
    p.temperature = i % 3 ? 1.5f : 0;
    p.repetition_penalty = i % 4 < 2 ? 1 : 1.3f;
    p.top_k = needs_row(i) ? 0 : 1 + 20 * (uint32_t)(i % 16);
    ag_sampler *s = open_sampler(&p);
    for (size_t t = 0; i % 2 && t < N_PROMPT; t++) ag_sampler_accept_prompt(s, prompt[t]);
    return s;
}

static uint64_t count_launches(const char *kernel) {
    ag_launch_info kinds[64];
    uint64_t sum = 0;
    size_t n;
    assert_int_equal(ag_backend_launches(backend, kinds, 64, &n), AG_OK);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++)
        if (!strncmp(kinds[i].name, kernel, strlen(kernel))) sum += kinds[i].n;
    return sum;
}

typedef enum choice { FROM_ROWS, IN_STEP, AFTER_STEP } choice;

/* Decodes with a choice from all logits, or from the best of them. Most samplers have a mask.
 * ids [STEPS][SESSIONS] */
static void decode_together(choice how, int32_t *ids) {
    random_filter filters[SESSIONS];
    ag_session *sessions[SESSIONS];
    ag_sampler *samplers[SESSIONS];
    ag_step_item items[SESSIONS];
    ag_error err;
    for (size_t i = 0; i < SESSIONS; i++) {
        const int32_t first[] = {(int32_t)(5 + 3 * i), 9};
        sessions[i] = open_session();
        samplers[i] = sampler_of(i);
        filters[i] = filter_of((uint32_t)i, false);
        set_filter(samplers[i], i % 8 ? &filters[i] : NULL);
        must(ag_session_prefill(sessions[i], first, 2, NULL, NULL, &err), &err);
    }
    for (size_t t = 0; t < STEPS; t++) {
        int32_t *to = ids + t * SESSIONS;
        for (size_t i = 0; i < SESSIONS; i++) {
            const bool chooses = how == IN_STEP && i != 2;
            ag_session_choose_later(sessions[i], how == AFTER_STEP && i != 2);
            items[i] = (ag_step_item){.session = sessions[i],
                                      .ids = t ? to - SESSIONS + i : &prompt[0],
                                      .n = 1,
                                      .phase = AG_PHASE_DECODE,
                                      .logits = AG_LOGITS_LAST,
                                      .sampler = chooses ? samplers[i] : NULL,
                                      .chosen = chooses ? &to[i] : NULL};
        }
        (void)count_launches("");
        must(ag_session_step(items, SESSIONS, &err), &err);
        /* Two groups of rows. Samplers that need entire rows have no query. */
        assert_int_equal(count_launches("take_best"), how == IN_STEP ? 2 : 0);
        if (how == AFTER_STEP) must(ag_session_find_tops(sessions, samplers, SESSIONS, &err), &err);
        for (size_t i = 0; i < SESSIONS; i++) {
            const float *logits = ag_session_logits(sessions[i]);
            const bool after = how == AFTER_STEP && i != 2;
            assert_int_equal(!logits, after || (items[i].sampler && !needs_row(i)));
            if (after) must(ag_session_choose(sessions[i], samplers[i], &to[i], &err), &err);
            else if (!items[i].sampler)
                must(ag_sampler_sample(samplers[i], logits, &to[i], &err), &err);
            if (after) assert_int_equal(!ag_session_logits(sessions[i]), !needs_row(i));
            ag_sampler_accept(samplers[i], to[i]);
        }
        /* The second group's rows have replaced some of the first, whose choices have queries. */
        if (how == AFTER_STEP)
            assert_in_range(count_launches("take_best"), 1, 1 + SESSIONS - AG_LOGIT_ROWS_DEVICE);
    }
    for (size_t i = 0; i < SESSIONS; i++) {
        ag_sampler_destroy(samplers[i]);
        ag_session_destroy(sessions[i]);
    }
}

static void steps_choose_for_all_sessions_in_one_query(void **state) {
    (void)state;
    int32_t from_top[STEPS * SESSIONS], from_rows[STEPS * SESSIONS];
    decode_together(FROM_ROWS, from_rows);
    for (choice how = IN_STEP; how <= AFTER_STEP; how++) {
        decode_together(how, from_top);
        assert_memory_equal(from_top, from_rows, sizeof from_rows);
    }
}

/* Feeds a token to n sessions. sampler NULL: their logits are copied to the host. */
static void step_of(ag_session *const sessions[], size_t n, int32_t token, ag_sampler *sampler) {
    ag_step_item items[SESSIONS];
    int32_t ids[SESSIONS], chosen;
    ag_error err;
    for (size_t i = 0; i < n; i++) {
        ids[i] = token + (int32_t)i;
        items[i] = (ag_step_item){.session = sessions[i],
                                  .ids = &ids[i],
                                  .n = 1,
                                  .phase = AG_PHASE_DECODE,
                                  .logits = AG_LOGITS_LAST,
                                  .sampler = sampler,
                                  .chosen = sampler ? &chosen : NULL};
    }
    must(ag_session_step(items, n, &err), &err);
}

static void logits_outlast_steps_of_other_sessions(void **state) {
    (void)state;
    enum { N = 6 };
    const size_t bytes = ag_model_get_info(model)->n_vocab * sizeof(float);
    ag_session *sessions[N], *others[N];
    ag_sampler *sampler = sampler_of(0);
    unsigned char *expected = malloc(N * bytes);
    ag_error err;
    assert_non_null(expected);
    for (size_t i = 0; i < N; i++) {
        sessions[i] = open_session();
        others[i] = open_session();
    }
    step_of(others, N, 7, NULL);
    for (size_t i = 0; i < N; i++)
        memcpy(expected + i * bytes, ag_session_logits(others[i]), bytes);
    step_of(sessions, N, 7, sampler);
    assert_null(ag_session_logits(sessions[0])); /* on the device */
    ag_session_destroy(sessions[2]);
    step_of(others, N - 1, 30, sampler);
    for (size_t i = 0; i < N; i++) {
        if (i == 2) continue;
        must(ag_session_fetch_logits(sessions[i], &err), &err);
        assert_memory_equal(ag_session_logits(sessions[i]), expected + i * bytes, bytes);
        ag_session_destroy(sessions[i]);
    }
    for (size_t i = 0; i < N; i++) ag_session_destroy(others[i]);
    ag_sampler_destroy(sampler);
    free(expected);
}

int main(void) {
    ag_backend_params params = {.time_launches = true};
    ag_error err;
    if (ag_cl_backend_create(&params, &backend, &err) != AG_OK) {
        printf("skipped: %s\n", err.msg);
        return EXIT_SKIPPED;
    }
    if (ag_model_load(backend, MODEL, NULL, &model, &err) != AG_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_choose_for_all_sessions_in_one_query),
        cmocka_unit_test(generated_tokens_are_those_of_whole_rows),
        cmocka_unit_test(constrained_tokens_need_no_whole_rows),
        cmocka_unit_test(failed_masks_fail_their_step),
        cmocka_unit_test(masks_may_change_after_a_step),
        cmocka_unit_test(drafts_are_chosen_with_masks),
        cmocka_unit_test(device_logits_follow_the_session_state),
        cmocka_unit_test(logits_outlast_steps_of_other_sessions),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return failed;
}
