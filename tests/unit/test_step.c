/* SPDX-License-Identifier: Apache-2.0 */
/* usage: test_step [BACKEND [SEED [short]]]
 * ag_session_step(): whatever shares a step, every session gets what it has alone. */
#include "support/named_backend.h"
#include "support/stride.h"
#include "support/without_matrix_units.h"

#include <antigravity/expert.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#define MODELS AG_SOURCE_DIR "/tests/data/golden/models/"
/* All layers see everything; most layers see 24 tokens; most keep a state; half of them see keys
 * and values of others. */
static const char *const model_dirs[] = {MODELS "gqa-llama3rope-sharded", MODELS "gemma3",
                                         MODELS "lfm2", MODELS "qwen3.5", MODELS "gemma4"};
enum { N_MODELS = 5, CHUNK = 16, MAX_SEQ = 480, MOST_SESSIONS = 64 };

static const char *backend_name; /* NULL: the default, where results are the same to the bit */
static unsigned seed;
static bool is_short; /* fewer steps, for devices that take long */
static ag_backend *backend;
static ag_model *models[N_MODELS], *model; /* model: the one at hand */
static size_t n_vocab;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static void use(size_t i) {
    model = models[i];
    n_vocab = ag_model_get_info(model)->n_vocab;
}

/* policy NULL: none. On a device how many rows there are decides about kernels and their rounding,
 * which halves in a cache would turn into steps of their own. */
static ag_session *make(const ag_eviction_policy *policy) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = MAX_SEQ;
    p.prefill_chunk = CHUNK;
    if (backend_name) p.k_type = p.v_type = AG_F32;
    p.eviction.policy = policy;
    p.eviction.budget_tokens = policy ? 40 : 0;
    p.eviction.recent = 8;
    p.eviction.slack = 8;
    p.eviction.snapkv_window = 8;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

static void random_ids(int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) ids[i] = 3 + rand() % 300;
}

static void same_row(const float *have, const float *want) {
    assert_non_null(have);
    assert_non_null(want);
    if (!backend_name) assert_memory_equal(have, want, n_vocab * sizeof *want);
    for (size_t i = 0; i < n_vocab; i++) {
        if (!(fabsf(have[i] - want[i]) < 1e-3f))
            fail_msg("logit %zu is %g, alone %g", i, (double)have[i], (double)want[i]);
    }
}

static void same_logits(const ag_session *a, const ag_session *b) {
    same_row(ag_session_logits(a), ag_session_logits(b));
}

/* Logits of a call's rows, as they were delivered. */
typedef struct rows {
    float *values; /* [CHUNK, n_vocab] */
    size_t n, first;
} rows;

static bool keep_row(void *user, size_t i, const float *logits) {
    rows *r = user;
    if (!r->n) r->first = i;
    assert_int_equal(i, r->first + r->n);
    memcpy(r->values + r->n++ * n_vocab, logits, n_vocab * sizeof *logits);
    return true;
}

static rows make_rows(void) {
    rows r = {.values = calloc(CHUNK * n_vocab, sizeof(float))};
    assert_non_null(r.values);
    return r;
}

/* ---- random mixtures ---- */

/* A session in mixed steps, and one that is alone and gets the same tokens. */
typedef struct pair {
    ag_session *mixed, *alone;
    bool managed;
    size_t announced; /* tokens of a prompt that is still to come */
    int32_t ids[CHUNK];
    size_t n_accepted; /* of tokens to verify */
    rows have, want;
} pair;

static pair make_pair(size_t i) {
    size_t n_policies = 0;
    while (ag_eviction_policy_at(n_policies)) n_policies++;
    pair p = {.managed = i % 3 == 1, .have = make_rows(), .want = make_rows()};
    const ag_eviction_policy *policy =
        p.managed ? ag_eviction_policy_at(1 + i % (n_policies - 1)) : NULL;
    p.mixed = make(policy);
    return p;
}

static void drop_pair(pair *p) {
    ag_session_destroy(p->mixed);
    ag_session_destroy(p->alone);
    free(p->have.values);
    free(p->want.values);
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* What the session brings to the next step. */
static ag_step_item random_item(pair *p) {
    ag_error err;
    ag_step_item item = {
        .session = p->mixed, .ids = p->ids, .n = 1 + (size_t)rand() % 7, .row_user = &p->have};
    p->have.n = 0;
    item.logits = (ag_logits_rows)(rand() % 3);
    if (item.logits != AG_LOGITS_NONE && rand() % 2) item.row = keep_row;
    if (!p->announced && rand() % 4 == 0) {
        p->announced = 2 + (size_t)rand() % 30;
        must(ag_session_begin_prompt(p->mixed, p->announced, &err), &err);
        if (p->managed) must(ag_session_begin_prompt(p->alone, p->announced, &err), &err);
    }
    if (p->announced) {
        item.phase = AG_PHASE_PROMPT;
        item.n = smaller(1 + (size_t)rand() % 12, ag_session_prompt_rows(p->mixed));
        p->announced -= item.n;
    } else {
        item.phase = (ag_phase)(rand() % 3);
        if (item.phase == AG_PHASE_DECODE) item.n = 1;
    }
    p->n_accepted = item.phase == AG_PHASE_VERIFY ? 1 + (size_t)rand() % item.n : item.n;
    random_ids(p->ids, item.n);
    return item;
}

/* With a policy steps count: the session alone takes the same ones. Without, a draft is verified in
 * a copy and the session itself never sees what is refused. */
static void consume_alone(pair *p, const ag_step_item *mixed) {
    ag_error err;
    p->want.n = 0;
    if (p->managed) {
        ag_step_item item = *mixed;
        item.session = p->alone;
        item.logits = AG_LOGITS_ALL;
        item.row = keep_row;
        item.row_user = &p->want;
        must(ag_session_step(&item, 1, &err), &err);
        return;
    }
    ag_session *copy;
    must(ag_session_fork(p->alone, &copy, &err), &err);
    must(ag_session_score(copy, p->ids, mixed->n, keep_row, &p->want, &err), &err);
    ag_session_destroy(copy);
    must(ag_session_prefill(p->alone, p->ids, p->n_accepted, NULL, NULL, &err), &err);
}

static void compare(pair *p, const ag_step_item *item) {
    const size_t last = item->n - 1;
    if (item->logits == AG_LOGITS_NONE) assert_null(ag_session_logits(p->mixed));
    else same_row(ag_session_logits(p->mixed), p->want.values + last * n_vocab);
    assert_int_equal(p->have.n, !item->row ? 0 : item->logits == AG_LOGITS_ALL ? item->n : 1);
    for (size_t i = 0; i < p->have.n; i++) {
        same_row(p->have.values + i * n_vocab, p->want.values + (p->have.first + i) * n_vocab);
    }
}

static void take_back(pair *p, const ag_step_item *item) {
    ag_error err;
    const uint32_t position = ag_session_position(p->mixed) - (uint32_t)(item->n - p->n_accepted);
    must(ag_session_truncate(p->mixed, position, &err), &err);
    must(ag_session_truncate(p->alone, position, &err), &err);
    assert_int_equal(ag_session_position(p->alone), position);
}

static void mixed_step(pair *pairs, size_t n_pairs) {
    ag_step_item items[MOST_SESSIONS];
    pair *of[MOST_SESSIONS];
    size_t n = 0;
    ag_error err;
    for (size_t i = 0; i < n_pairs; i++) {
        const bool always = n_pairs == MOST_SESSIONS;
        if (!always && rand() % 4 == 0) continue;
        items[n] = random_item(&pairs[i]);
        of[n++] = &pairs[i];
    }
    if (!n) return;
    must(ag_session_step(items, n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        consume_alone(of[i], &items[i]);
        compare(of[i], &items[i]);
        take_back(of[i], &items[i]);
    }
}

/* Some sessions are so long that layers with a window have dropped tokens. In few steps a policy
 * drops tokens of what is as long as its budget from the start. */
static size_t first_length(const pair *p, size_t i) {
    if (i % (is_short ? 7 : 6) == 0) return 290;
    return is_short && p->managed ? 44 : (size_t)rand() % 12;
}

static void run_mixtures(size_t n_pairs, size_t n_steps) {
    pair pairs[MOST_SESSIONS];
    int32_t ids[300];
    ag_error err;
    for (size_t i = 0; i < n_pairs; i++) {
        pairs[i] = make_pair(i);
        const size_t n = first_length(&pairs[i], i);
        random_ids(ids, n);
        if (n) must(ag_session_prefill(pairs[i].mixed, ids, n, NULL, NULL, &err), &err);
        must(ag_session_fork(pairs[i].mixed, &pairs[i].alone, &err),
             &err); /* reads nothing again */
    }
    for (size_t step = 0; step < n_steps; step++) mixed_step(pairs, n_pairs);
    for (size_t i = 0; i < n_pairs; i++) drop_pair(&pairs[i]);
}

static void mixtures_give_what_each_session_has_alone(void **state) {
    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    for (size_t m = 0; m < N_MODELS; m++) {
        use(m);
        run_mixtures(7, is_short ? 2 : backend_name ? 6 : 12);
        if (!backend_name && m % test_stride() == 0) run_mixtures(MOST_SESSIONS, 3);
    }
}

/* ---- which logits ---- */

static void logits_are_delivered_as_wanted(void **state) {
    (void)state;
    use(0);
    const int32_t ids[] = {3, 4, 5, 6, 7};
    rows got[3], want = make_rows();
    ag_session *s[3], *alone = make(NULL);
    ag_step_item items[3];
    ag_error err;
    for (size_t i = 0; i < 3; i++) {
        s[i] = make(NULL);
        got[i] = make_rows();
        items[i] = (ag_step_item){.session = s[i],
                                  .ids = ids,
                                  .n = 5,
                                  .logits = (ag_logits_rows)i,
                                  .row = keep_row,
                                  .row_user = &got[i]};
    }
    must(ag_session_score(alone, ids, 5, keep_row, &want, &err), &err);
    must(ag_session_step(items, 3, &err), &err);
    assert_int_equal(got[0].n, 0);
    assert_null(ag_session_logits(s[0]));
    assert_int_equal(got[1].n, 1);
    assert_int_equal(got[1].first, 4);
    same_row(got[1].values, want.values + 4 * n_vocab);
    assert_int_equal(got[2].n, 5);
    for (size_t i = 0; i < 5; i++) same_row(got[2].values + i * n_vocab, want.values + i * n_vocab);
    same_logits(s[1], alone);
    same_logits(s[2], alone);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ag_session_position(s[i]), 5);
        ag_session_destroy(s[i]);
        free(got[i].values);
    }
    ag_session_destroy(alone);
    free(want.values);
}

/* ---- samplers ---- */

enum { N_TEXTS = 3, TEXT = 40, SHORT_TEXT = 14, DRAFT = 5 };

static size_t text_length(void) { return is_short ? SHORT_TEXT : TEXT; }

static ag_sampler *sampler_of(size_t text) {
    ag_sampler_params p = ag_sampler_defaults();
    ag_sampler *out;
    ag_error err;
    if (text == 0) p.temperature = 0;
    p.seed = 11 + text;
    must(ag_sampler_create(&p, (int32_t)n_vocab, &out, &err), &err);
    return out;
}

/* What sampling from the logits of one token after another gives. */
static void plain_text(size_t text, int32_t prompt, int32_t *out) {
    ag_session *s = make(NULL);
    ag_sampler *sampler = sampler_of(text);
    ag_error err;
    out[0] = prompt;
    for (size_t i = 0; i + 1 < text_length(); i++) {
        ag_sampler_accept(sampler, out[i]);
        must(ag_session_decode(s, out[i], &err), &err);
        must(ag_sampler_sample(sampler, ag_session_logits(s), &out[i + 1], &err), &err);
    }
    ag_sampler_destroy(sampler);
    ag_session_destroy(s);
}

/* A text whose next tokens are guessed and verified; the guess is right up to some place. */
typedef struct drafted {
    ag_session *session;
    ag_sampler *sampler;
    int32_t want[TEXT], ids[DRAFT], chosen[DRAFT];
    size_t at,
        n_right; /* where it stands; draft tokens that are right, the first one not counted */
} drafted;

static ag_step_item draft(drafted *d) {
    const size_t n = smaller(DRAFT, text_length() - 1 - d->at);
    memcpy(d->ids, d->want + d->at, n * sizeof *d->ids);
    d->n_right = (size_t)rand() % n;
    if (d->n_right + 1 < n) d->ids[d->n_right + 1] = (d->ids[d->n_right + 1] + 1) % 300;
    memset(d->chosen, 0x55, sizeof d->chosen);
    return (ag_step_item){.session = d->session,
                          .ids = d->ids,
                          .n = n,
                          .phase = AG_PHASE_VERIFY,
                          .logits = AG_LOGITS_ALL,
                          .sampler = d->sampler,
                          .chosen = d->chosen};
}

static void heed_verdict(drafted *d, size_t n) {
    ag_error err;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(d->chosen[i], i <= d->n_right ? d->want[d->at + i + 1] : -1);
    }
    d->at += d->n_right + 1;
    must(ag_session_truncate(d->session, (uint32_t)d->at, &err), &err);
    ag_sampler_accept(d->sampler, d->want[d->at]);
}

static void drafts_change_no_text(void **state) {
    (void)state;
    srand(seed);
    for (size_t m = 0; m < N_MODELS; m++) {
        drafted texts[N_TEXTS];
        ag_error err;
        use(m);
        for (size_t t = 0; t < N_TEXTS; t++) {
            texts[t] = (drafted){.session = make(NULL), .sampler = sampler_of(t)};
            plain_text(t, 20 + (int32_t)t, texts[t].want);
            ag_sampler_accept(texts[t].sampler, texts[t].want[0]);
        }
        for (size_t n = 1; n;) {
            ag_step_item items[N_TEXTS];
            drafted *of[N_TEXTS];
            n = 0;
            for (size_t t = 0; t < N_TEXTS; t++) {
                if (texts[t].at + 1 >= text_length()) continue;
                of[n] = &texts[t];
                items[n++] = draft(&texts[t]);
            }
            if (n) must(ag_session_step(items, n, &err), &err);
            for (size_t i = 0; i < n; i++) heed_verdict(of[i], items[i].n);
        }
        for (size_t t = 0; t < N_TEXTS; t++) {
            ag_session_destroy(texts[t].session);
            ag_sampler_destroy(texts[t].sampler);
        }
    }
}

/* Rows of prompts and decoded tokens in one step, each chosen from as it would be alone. */
static void a_sampler_chooses_as_from_the_logits(void **state) {
    (void)state;
    enum { N = 4 };
    ag_session *s[N], *alone[N];
    ag_sampler *samplers[N], *same[N];
    ag_error err;
    use(0);
    for (size_t i = 0; i < N; i++) {
        s[i] = make(NULL);
        alone[i] = make(NULL);
        samplers[i] = sampler_of(i);
        same[i] = sampler_of(i);
    }
    for (int round = 0; round < 12; round++) {
        int32_t ids[N][CHUNK], chosen[N], want;
        ag_step_item items[N];
        for (size_t i = 0; i < N; i++) {
            const bool prompt = (round + (int)i) % 4 == 0;
            random_ids(ids[i], CHUNK);
            items[i] = (ag_step_item){.session = s[i],
                                      .ids = ids[i],
                                      .n = prompt ? 5 + i : 1,
                                      .phase = prompt ? AG_PHASE_PROMPT : AG_PHASE_DECODE,
                                      .logits = AG_LOGITS_LAST,
                                      .sampler = samplers[i],
                                      .chosen = &chosen[i]};
        }
        must(ag_session_step(items, round % 3 ? N : 1, &err), &err);
        for (size_t i = 0; i < (round % 3 ? N : 1); i++) {
            must(ag_session_prefill(alone[i], ids[i], items[i].n, NULL, NULL, &err), &err);
            must(ag_sampler_sample(same[i], ag_session_logits(alone[i]), &want, &err), &err);
            assert_int_equal(chosen[i], want);
            ag_sampler_accept(samplers[i], want);
            ag_sampler_accept(same[i], want);
        }
    }
    for (size_t i = 0; i < N; i++) {
        ag_session_destroy(s[i]);
        ag_session_destroy(alone[i]);
        ag_sampler_destroy(samplers[i]);
        ag_sampler_destroy(same[i]);
    }
}

/* ---- what fails ---- */

static bool refuse_row(void *user, size_t i, const float *logits) {
    (void)logits;
    return i != *(const size_t *)user;
}

/* Two sessions at positions 20 and 3, and copies that take part in nothing. */
typedef struct rig {
    ag_session *s[2], *untouched[2];
    ag_step_item items[2]; /* that would succeed */
} rig;

static const int32_t some_ids[CHUNK + 1] = {9, 8, 7, 6, 5, 4, 3};

static rig make_rig(void) {
    rig r;
    int32_t ids[20];
    ag_error err;
    random_ids(ids, 20);
    for (size_t i = 0; i < 2; i++) {
        r.s[i] = make(NULL);
        must(ag_session_prefill(r.s[i], ids, i ? 3 : 20, NULL, NULL, &err), &err);
        must(ag_session_fork(r.s[i], &r.untouched[i], &err), &err);
        r.items[i] = (ag_step_item){
            .session = r.s[i], .ids = some_ids, .n = i ? 1 : 6, .logits = AG_LOGITS_LAST};
    }
    return r;
}

static void drop_rig(rig *r) {
    for (size_t i = 0; i < 2; i++) {
        ag_session_destroy(r->s[i]);
        ag_session_destroy(r->untouched[i]);
    }
}

static void nobody_moved(const rig *r) {
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ag_session_position(r->s[i]), ag_session_position(r->untouched[i]));
        assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(r->s[i])),
                         ag_kv_cache_length(ag_session_kv_cache(r->untouched[i])));
    }
}

/* The step fails so, and afterwards the right one gives what it would have given at once. */
static void fails(const rig *r, const ag_step_item items[2], ag_status want, const char *message) {
    ag_error err;
    assert_int_equal(ag_session_step(items, 2, &err), want);
    if (!strstr(err.msg, message)) fail_msg("'%s' does not say '%s'", err.msg, message);
    nobody_moved(r);
}

static void goes_on(rig *r) {
    ag_error err;
    must(ag_session_step(r->items, 2, &err), &err);
    for (size_t i = 0; i < 2; i++) {
        must(ag_session_prefill(r->untouched[i], some_ids, r->items[i].n, NULL, NULL, &err), &err);
        same_logits(r->s[i], r->untouched[i]);
    }
    nobody_moved(r);
}

static void a_step_fails_as_a_whole(void **state) {
    (void)state;
    const int32_t unknown[] = {3, (int32_t)n_vocab};
    const size_t second = 1;
    int32_t chosen;
    use(1);
    ag_session *foreign = make(NULL);
    use(0);
    ag_sampler *sampler = sampler_of(0);
    rig r = make_rig();
    ag_error err;
    assert_int_equal(ag_session_step(r.items, 0, &err), AG_INVALID);
    const struct {
        ag_step_item item; /* in place of the second */
        ag_status want;
        const char *message;
    } cases[] = {
        {{.session = r.s[0], .ids = some_ids, .n = 1}, AG_INVALID, "sessions 0 and 1 are the same"},
        {{.session = foreign, .ids = some_ids, .n = 1}, AG_INVALID, "session 1 belongs to another"},
        {{.session = r.s[1], .ids = some_ids, .n = 0}, AG_INVALID, "no tokens"},
        {{.session = r.s[1], .ids = some_ids, .n = CHUNK + 1}, AG_LIMIT, "item 1 brings 17 tokens"},
        {{.session = r.s[1], .ids = unknown, .n = 2}, AG_INVALID, "outside the vocabulary"},
        {{.session = r.s[1], .ids = some_ids, .n = 1, .sampler = sampler, .chosen = &chosen},
         AG_INVALID,
         "no logits to choose from"},
        {{.session = r.s[1], .ids = some_ids, .n = 1, .logits = AG_LOGITS_LAST, .sampler = sampler},
         AG_INVALID,
         "no place for what it chooses"},
        {{.session = r.s[1],
          .ids = some_ids,
          .n = 3,
          .logits = AG_LOGITS_ALL,
          .row = refuse_row,
          .row_user = (void *)(uintptr_t)&second},
         AG_CANCELLED,
         "cancelled at token 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ag_step_item items[] = {r.items[0], cases[i].item};
        fails(&r, items, cases[i].want, cases[i].message);
    }
    goes_on(&r);
    drop_rig(&r);
    ag_sampler_destroy(sampler);
    ag_session_destroy(foreign);
}

static void a_session_without_room_stops_the_others(void **state) {
    (void)state;
    int32_t ids[MAX_SEQ];
    ag_error err;
    use(0);
    rig r = make_rig();
    ag_session *full = make(NULL);
    random_ids(ids, MAX_SEQ);
    must(ag_session_prefill(full, ids, MAX_SEQ - 2, NULL, NULL, &err), &err);
    const ag_step_item items[] = {r.items[0], {.session = full, .ids = some_ids, .n = 3}};
    fails(&r, items, AG_LIMIT, "3 tokens do not fit");
    assert_int_equal(ag_session_position(full), MAX_SEQ - 2);
    goes_on(&r);
    drop_rig(&r);
    ag_session_destroy(full);
}

static void any_session_cancels_a_step(void **state) {
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        use(m);
        rig r = make_rig();
        ag_session_cancel(r.s[1]);
        fails(&r, r.items, AG_CANCELLED, "cancelled before the step");
        goes_on(&r);
        drop_rig(&r);
    }
}

/* Asked when the step has begun. */
static void cancel_meanwhile(void *user, uint64_t now_ms, ag_memory_signals *out) {
    ag_session **s = user;
    (void)now_ms;
    *out = (ag_memory_signals){.hint = AG_PRESSURE_NORMAL};
    if (*s) ag_session_cancel(*s);
    *s = NULL;
}

static uint64_t a_second_later(void *user) {
    static uint64_t now;
    (void)user;
    return now += 1000;
}

static void a_step_of_several_ends_on_its_way(void **state) {
    (void)state;
    const int32_t ids[CHUNK] = {3, 5};
    ag_session *cancelled = NULL, *plain, *watched;
    ag_session_params p = ag_session_defaults();
    ag_error err;
    use(0);
    p.max_seq_len = MAX_SEQ;
    p.prefill_chunk = CHUNK;
    p.eviction.memory.threshold_bytes = 1;
    p.eviction.memory.read = cancel_meanwhile;
    p.eviction.memory.clock_ms = a_second_later;
    p.eviction.memory.user = &cancelled;
    plain = make(NULL);
    must(ag_session_create(model, &p, &watched, &err), &err);
    const ag_step_item items[] = {{.session = plain, .ids = ids, .n = CHUNK},
                                  {.session = watched, .ids = ids, .n = 1}};
    cancelled = plain;
    assert_int_equal(ag_session_step(items, 2, &err), AG_CANCELLED);
    assert_non_null(strstr(err.msg, "layer 0"));
    assert_int_equal(ag_session_position(plain) + ag_session_position(watched), 0);
    must(ag_session_step(items, 2, &err), &err);
    ag_session_destroy(plain);
    ag_session_destroy(watched);
}

static bool stop_at_once(void *user, uint64_t n_done, uint64_t n) {
    (void)user, (void)n_done, (void)n;
    return false;
}

/* What is announced is taken back by whatever goes wrong: a later step is no part of it. */
static void what_goes_wrong_ends_an_announced_prompt(void **state) {
    (void)state;
    const int32_t ids[2 * CHUNK] = {3}, outside = -1;
    ag_error err;
    use(0);
    ag_session *s = make(NULL);
    ag_step_item item = {.session = s, .ids = &outside, .n = 1, .phase = AG_PHASE_PROMPT};
    must(ag_session_begin_prompt(s, 2 * CHUNK, &err), &err);
    assert_int_equal(ag_session_prompt_rows(s), CHUNK);
    assert_int_equal(ag_session_step(&item, 1, NULL), AG_INVALID);
    assert_int_equal(ag_session_prompt_rows(s), 0);
    must(ag_session_begin_prompt(s, 2 * CHUNK, &err), &err);
    item.ids = ids;
    ag_session_cancel(s);
    assert_int_equal(ag_session_step(&item, 1, NULL), AG_CANCELLED);
    assert_int_equal(ag_session_prompt_rows(s), 0);
    assert_int_equal(ag_session_prefill(s, ids, 2 * CHUNK, stop_at_once, NULL, NULL), AG_CANCELLED);
    assert_int_equal(ag_session_position(s), CHUNK);
    assert_int_equal(ag_session_prompt_rows(s), 0);
    ag_session_destroy(s);
}

static void steps_of_known_sizes_allocate_nothing(void **state) {
    (void)state;
    enum { N = 3 };
    /* Blocks of a cache in a device's memory are buffers: the steps stay in the first one. */
    const int n_steps = backend_name ? 60 : 200;
    ag_session *s[N];
    ag_step_item items[N];
    int32_t chosen[N];
    ag_sampler *sampler;
    ag_error err;
    use(0);
    sampler = sampler_of(1);
    for (size_t i = 0; i < N; i++) {
        s[i] = make(NULL);
        items[i] = (ag_step_item){.session = s[i],
                                  .ids = some_ids,
                                  .n = 1,
                                  .phase = AG_PHASE_DECODE,
                                  .logits = AG_LOGITS_LAST,
                                  .sampler = i ? NULL : sampler,
                                  .chosen = &chosen[i]};
    }
    must(ag_session_step(items, 1, &err), &err);
    size_t before = ag_allocation_count();
    for (int i = 0; i < n_steps; i++) must(ag_session_step(items, 1, &err), &err);
    assert_int_equal(ag_allocation_count() - before, 0);
    must(ag_session_step(items, N, &err), &err);
    before = ag_allocation_count();
    for (int i = 0; i < n_steps; i++) must(ag_session_step(items, N, &err), &err);
    assert_int_equal(ag_allocation_count() - before, 0);
    for (size_t i = 0; i < N; i++) ag_session_destroy(s[i]);
    ag_sampler_destroy(sampler);
}

int main(int argc, char **argv) {
    ag_error err;
    backend_name = argc > 1 && strcmp(argv[1], "cpu") != 0 ? argv[1] : NULL;
    seed = argc > 2 ? (unsigned)atoi(argv[2]) : 20;
    is_short = argc > 3 && strcmp(argv[3], "short") == 0;
    without_matrix_units();
    backend = open_backend(backend_name, 2);
    if (!backend) return EXIT_SKIPPED;
    /* A GPU multiplies few rows and many by other kernels: what quantised weights round is not
     * what this compares. */
    ag_model_params mp = ag_model_defaults();
    if (backend_name) mp.weights = AG_F32;
    for (size_t i = 0; i < N_MODELS; i++) {
        if (ag_model_load(backend, model_dirs[i], &mp, &models[i], &err) == AG_OK) continue;
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    use(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixtures_give_what_each_session_has_alone),
        cmocka_unit_test(logits_are_delivered_as_wanted),
        cmocka_unit_test(drafts_change_no_text),
        cmocka_unit_test(a_sampler_chooses_as_from_the_logits),
        cmocka_unit_test(a_step_fails_as_a_whole),
        cmocka_unit_test(a_session_without_room_stops_the_others),
        cmocka_unit_test(any_session_cancels_a_step),
        cmocka_unit_test(a_step_of_several_ends_on_its_way),
        cmocka_unit_test(what_goes_wrong_ends_an_announced_prompt),
        cmocka_unit_test(steps_of_known_sizes_allocate_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < N_MODELS; i++) ag_model_destroy(models[i]);
    ag_backend_destroy(backend);
    return failed;
}
