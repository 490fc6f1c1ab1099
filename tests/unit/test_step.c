/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_step [BACKEND [SEED [short]]]
 *
 * ag_session_step(): every session of a step gets the logits that it gets alone. */
#include "support/stride.h"
#include "unit/step_sessions.h"

enum { MOST_SESSIONS = 64 };

static unsigned seed;
static bool is_short; /* fewer steps, for slow devices */

/* Logits of a call's rows, as delivered. */
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

/* A session in mixed steps, and a single session that gets the same tokens. */
typedef struct pair {
    ag_session *mixed, *alone;
    bool managed;
    size_t announced; /* tokens of a prompt that are not fed yet */
    int32_t ids[CHUNK];
    size_t n_accepted; /* accepted tokens to verify */
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

/* Returns the session's item for the next step. */
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

/* With a policy the number of steps matters: the single session takes the same steps. Without one,
 * a draft is verified in a copy, so the session never sees rejected tokens. */
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

/* Some sessions are so long that layers with a window have dropped tokens. In short walks a policy
 * needs sessions of its budget's length from the start. */
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
             &err); /* reads no token again */
    }
    for (size_t step = 0; step < n_steps; step++) mixed_step(pairs, n_pairs);
    for (size_t i = 0; i < n_pairs; i++) drop_pair(&pairs[i]);
}

static void mixed_items_match_single_sessions(void **state) {
    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    for (size_t m = 0; m < n_models; m++) {
        use(m);
        run_mixtures(7, is_short ? 2 : backend_name ? 6 : 12);
        if (!backend_name && m % test_stride() == 0) run_mixtures(MOST_SESSIONS, 3);
    }
}

/* ---- delivered logits ---- */

static void delivers_the_requested_logits(void **state) {
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

/* Writes the text that sampling token by token gives. */
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

/* Text whose drafts are right up to a random token. */
typedef struct drafted {
    ag_session *session;
    ag_sampler *sampler;
    int32_t want[TEXT], ids[DRAFT], chosen[DRAFT];
    size_t at, n_right; /* current token; draft tokens that are right, without the first */
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

static void drafts_do_not_change_the_text(void **state) {
    (void)state;
    srand(seed);
    for (size_t m = 0; m < n_models; m++) {
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

/* Prompt rows and decoded tokens share a step; each is sampled from as alone. */
static void sampler_matches_a_choice_from_the_logits(void **state) {
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

/* ---- memory ---- */

static void steps_of_known_size_do_not_allocate(void **state) {
    (void)state;
    enum { N = 3 };
    /* A cache block on a device is a buffer of its own: the steps stay in the first block. */
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
    const int unfit = open_models(argc > 1 ? argv[1] : NULL);
    if (unfit) return unfit;
    seed = argc > 2 ? (unsigned)atoi(argv[2]) : 20;
    is_short = argc > 3 && strcmp(argv[3], "short") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_items_match_single_sessions),
        cmocka_unit_test(delivers_the_requested_logits),
        cmocka_unit_test(drafts_do_not_change_the_text),
        cmocka_unit_test(sampler_matches_a_choice_from_the_logits),
        cmocka_unit_test(steps_of_known_size_do_not_allocate),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close_models();
    return failed;
}
