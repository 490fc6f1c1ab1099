/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_speculate [SEED [N]], or test_speculate opencl [SEED [N]] with kernels for processors
 *
 * Drafts change only the time: with and without them a generation shows the same text, ends for the
 * same reason and leaves session and sampler in the same state, to the bit. */
#include "support/named_backend.h"
#include "support/stride.h"
#include "text/sampler_filter.h"

#include <antigravity/alloc.h>
#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#define GOLDEN AG_GOLDEN_MODELS "/"
/* The first model has a tokenizer. The others: no windows; windows of 24 tokens in most layers; a
 * state in most layers; shared keys and values in half of the layers. */
static const char *const model_dirs[] = {AG_SOURCE_DIR "/models/demo",
                                         GOLDEN "gqa-llama3rope-sharded",
                                         GOLDEN "gemma3",
                                         GOLDEN "lfm2",
                                         GOLDEN "qwen3.5",
                                         GOLDEN "gemma4"};
enum { N_MODELS = sizeof model_dirs / sizeof *model_dirs, MOST_TOKENS = 160, TURNS = 2 };
enum { LONG_PROMPT = 240 }; /* windows of 24 are about to drop slots */

static unsigned first_seed = 1, n_seeds = 60;
static const char *backend_name; /* NULL: the CPU */
static ag_backend *backend;
static ag_model *models[N_MODELS];
static ag_tokenizer *tokenizer;
static size_t n_drafted, n_accepted, n_finished[AG_FINISH_CANCELLED + 1];

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static int load(void **state) {
    (void)state;
    ag_error err;
    for (size_t i = 0; i < N_MODELS; i++)
        must(ag_model_load(backend, model_dirs[i], NULL, &models[i], &err), &err);
    must(ag_tokenizer_load(model_dirs[0], &tokenizer, &err), &err);
    return 0;
}

static int unload(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) ag_model_destroy(models[i]);
    ag_tokenizer_destroy(tokenizer);
    ag_backend_destroy(backend);
    return 0;
}

/* ---- generations ---- */

typedef struct setup {
    unsigned seed;
    ag_model *model;
    ag_session_params session;
    ag_sampler_params sampler;
    ag_generate_params generate;
    ag_logit_bias bias[2];
    char stop[2][8];
    const char *stops[2];
    int32_t prompt[LONG_PROMPT];
    size_t n_prompt;
    size_t cancel_after; /* tokens; 0: never */
    bool cancel_session; /* by ag_session_cancel() */
    ag_model *draft;     /* NULL: drafts come only from the text */
    uint32_t draft_seq_len;
} setup;

static size_t up_to(size_t n) { return (size_t)rand() % n; }

static void choose_sampling(setup *u, const ag_model_info *info) {
    static const float temperatures[] = {0, 0, 0.3f, 0.8f, 1.3f};
    ag_sampler_params *p = &u->sampler;
    *p = ag_sampler_defaults();
    p->seed = u->seed;
    p->temperature = temperatures[up_to(5)];
    p->top_k = up_to(2) ? 40 : 0;
    p->top_p = up_to(2) ? 0.9f : 1;
    p->min_p = up_to(4) ? 0 : 0.05f;
    p->repetition_penalty = up_to(2) ? 1 : 1.1f;
    p->frequency_penalty = up_to(4) ? 0 : 0.2f;
    p->repetition_window = up_to(2) ? 64 : 7;
    if (!up_to(3) && info->n_eos) {
        u->bias[0] = (ag_logit_bias){info->eos_ids[0], (float)up_to(8)};
        u->bias[1] = (ag_logit_bias){5, -INFINITY};
        p->logit_bias = u->bias;
        p->n_logit_bias = 2;
    }
}

static void choose_cache(setup *u, const ag_model_info *info) {
    static const ag_dtype types[] = {AG_F16, AG_F16, AG_F32, AG_Q8_0, AG_Q4_0};
    ag_session_params *p = &u->session;
    *p = ag_session_defaults();
    p->max_seq_len = up_to(4) ? 400 : 60 + (uint32_t)up_to(60);
    p->prefill_chunk = up_to(3) ? 64 : 5;
    p->k_type = types[up_to(info->head_dim % 32 ? 3 : 5)];
    p->v_type = types[up_to(info->head_dim % 32 ? 3 : 5)];
    if (up_to(3)) return;
    size_t n_policies = 0;
    while (ag_eviction_policy_at(n_policies)) n_policies++;
    p->max_seq_len = 160;
    p->eviction.policy = ag_eviction_policy_at(up_to(n_policies));
    p->eviction.budget_tokens = 40 + (uint32_t)up_to(40);
    p->eviction.slack = (uint32_t)up_to(20);
    p->eviction.recent = 8;
    p->eviction.snapkv_window = 8;
}

/* Short texts that repeat themselves in part. */
static void choose_prompt(setup *u, const ag_model_info *info) {
    const size_t period = 1 + up_to(24);
    u->n_prompt = u->session.max_seq_len == 400 && !up_to(4) ? LONG_PROMPT : 1 + up_to(48);
    for (size_t i = 0; i < u->n_prompt; i++) {
        const bool copies = i >= period && up_to(16);
        u->prompt[i] = copies ? u->prompt[i - period] : (int32_t)up_to(info->n_vocab);
    }
}

static setup choose(unsigned seed) {
    setup u = {.seed = seed};
    const size_t m = seed % N_MODELS;
    srand(seed);
    u.model = models[m];
    const ag_model_info *info = ag_model_get_info(u.model);
    choose_sampling(&u, info);
    choose_cache(&u, info);
    choose_prompt(&u, info);
    u.generate = ag_generate_defaults();
    u.generate.max_tokens = up_to(4) ? 1 + (int64_t)up_to(90) : -1;
    u.generate.ignore_eos = up_to(3) == 0;
    u.generate.draft_max = (uint32_t)up_to(16);
    u.cancel_after = up_to(5) && u.generate.max_tokens >= 0 ? 0 : 1 + up_to(120);
    u.cancel_session = up_to(2);
    if (!up_to(3)) u.draft = models[up_to(2) ? m : up_to(N_MODELS)];
    u.draft_seq_len = up_to(3) ? 600 : 70;
    if (m == 0) u.generate.tokenizer = tokenizer;
    for (size_t i = 0; m == 0 && i < up_to(3); i++) {
        snprintf(u.stop[i], sizeof u.stop[i], "%c%c", "aeiou"[up_to(5)], "nrstl"[up_to(5)]);
        u.generate.n_stop = i + 1;
    }
    return u;
}

/* ---- results ---- */

typedef struct seen {
    ag_session *session;
    int32_t ids[TURNS * MOST_TOKENS];
    size_t lengths[TURNS * MOST_TOKENS];
    size_t n_ids, cancel_after;
    bool cancel_session;
    char text[TURNS * MOST_TOKENS * 16];
    size_t n_text;
    ag_generate_stats stats[TURNS];
    uint32_t positions[TURNS];
    float *logits;
} seen;

static bool watch(void *user, int32_t id, const char *text, size_t len) {
    seen *s = user;
    assert_true(s->n_ids < TURNS * MOST_TOKENS && s->n_text + len <= sizeof s->text);
    s->ids[s->n_ids] = id;
    s->lengths[s->n_ids++] = len;
    memcpy(s->text + s->n_text, text, len);
    s->n_text += len;
    if (!s->cancel_after || s->n_ids != s->cancel_after) return s->n_ids < MOST_TOKENS;
    if (!s->cancel_session) return false;
    ag_session_cancel(s->session);
    return true;
}

static void keep_logits(seen *out, size_t n_vocab) {
    const float *logits = ag_session_logits(out->session);
    out->logits = malloc(n_vocab * sizeof(float));
    assert_non_null(out->logits);
    assert_non_null(logits);
    memcpy(out->logits, logits, n_vocab * sizeof(float));
}

static ag_session *make_draft(const setup *u) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = u->draft_seq_len;
    p.prefill_chunk = 16;
    must(ag_session_create(u->draft, &p, &s, &err), &err);
    return s;
}

/* Generates a text and then its continuation. */
static void generate(const setup *from, ag_speculate how, seen *out) {
    setup u = *from;
    ag_error err;
    ag_sampler *sampler;
    const size_t n_vocab = ag_model_get_info(u.model)->n_vocab;
    memset(out, 0, sizeof *out);
    out->cancel_after = u.cancel_after;
    out->cancel_session = u.cancel_session;
    for (size_t i = 0; i < u.generate.n_stop; i++) u.stops[i] = u.stop[i];
    u.sampler.logit_bias = u.sampler.n_logit_bias ? u.bias : NULL;
    u.generate.stop = u.stops;
    u.generate.speculate = how;
    u.generate.on_token = watch;
    u.generate.on_token_user = out;
    must(ag_session_create(u.model, &u.session, &out->session, &err), &err);
    must(ag_sampler_create(&u.sampler, (int32_t)n_vocab, &sampler, &err), &err);
    if (u.draft && how != AG_SPECULATE_OFF) u.generate.draft = make_draft(&u);
    u.generate.sampler = sampler;
    for (size_t turn = 0; turn < TURNS; turn++) {
        ag_generate_stats *stats = &out->stats[turn];
        if (turn) {
            u.prompt[0] = stats[-1].last_id;
            u.n_prompt = 1 + u.n_prompt % 4;
            if (ag_session_capacity_left(out->session) <= u.n_prompt) break;
        }
        must(ag_session_generate(out->session, u.prompt, u.n_prompt, &u.generate, stats, &err),
             &err);
        out->positions[turn] = ag_session_position(out->session);
        n_finished[stats->finish]++;
        n_drafted += stats->n_drafted;
        n_accepted += stats->n_accepted;
        assert_true(stats->n_accepted <= stats->n_drafted);
    }
    keep_logits(out, n_vocab);
    ag_sampler_destroy(sampler);
    ag_session_destroy(out->session);
    ag_session_destroy(u.generate.draft);
}

static void compare(const setup *u, const seen *have, const seen *want) {
    for (size_t turn = 0; turn < TURNS; turn++) {
        const ag_generate_stats *a = &have->stats[turn], *b = &want->stats[turn];
        assert_int_equal(a->finish, b->finish);
        assert_int_equal(a->n_generated, b->n_generated);
        assert_int_equal(a->last_id, b->last_id);
        assert_int_equal(a->kv_bytes, b->kv_bytes);
        assert_int_equal(a->evictions.n_tokens, b->evictions.n_tokens);
        assert_int_equal(have->positions[turn], want->positions[turn]);
    }
    assert_int_equal(have->n_ids, want->n_ids);
    assert_memory_equal(have->ids, want->ids, want->n_ids * sizeof *want->ids);
    assert_memory_equal(have->lengths, want->lengths, want->n_ids * sizeof *want->lengths);
    assert_int_equal(have->n_text, want->n_text);
    assert_memory_equal(have->text, want->text, want->n_text);
    const size_t n_vocab = ag_model_get_info(u->model)->n_vocab;
    assert_memory_equal(have->logits, want->logits, n_vocab * sizeof(float));
}

static void drafts_do_not_change_the_text(void **state) {
    (void)state;
    static seen want, have;
    for (size_t i = 0; i < n_seeds; i += test_stride()) {
        const unsigned seed = first_seed + (unsigned)i;
        const setup u = choose(seed);
        generate(&u, AG_SPECULATE_OFF, &want);
        generate(&u, seed % 4 ? AG_SPECULATE_ALWAYS : AG_SPECULATE_AUTO, &have);
        compare(&u, &have, &want);
        free(have.logits);
        free(want.logits);
    }
    print_message(
        "%zu drafted, %zu accepted; %zu eos, %zu stop, %zu most, %zu full, %zu cancelled\n",
        n_drafted, n_accepted, n_finished[0], n_finished[1], n_finished[2], n_finished[3],
        n_finished[4]);
    if (test_stride() > 1) return;
    assert_true(n_accepted > 0);
    if (n_seeds < 60) return;
    assert_true(n_accepted > 50 && n_drafted - n_accepted > 50);
    for (size_t i = 0; i <= AG_FINISH_CANCELLED; i++) assert_true(n_finished[i] > 2);
}

/* ---- benefit and cost of drafts ---- */

/* Greedy text, drafted by another session of the same model. */
static void draft_model_follows_the_text(void **state) {
    (void)state;
    static seen out;
    setup u = {.model = models[1], .draft = models[1], .draft_seq_len = 400};
    u.session = ag_session_defaults();
    u.sampler = ag_sampler_defaults();
    u.sampler.temperature = 0;
    u.sampler.frequency_penalty = 1; /* no long repetitions */
    u.sampler.repetition_window = 400;
    u.generate = ag_generate_defaults();
    u.generate.max_tokens = 60;
    u.generate.ignore_eos = true;
    for (u.n_prompt = 0; u.n_prompt < 20; u.n_prompt++)
        u.prompt[u.n_prompt] = 3 + (int32_t)(u.n_prompt * u.n_prompt * 7 % 200);
    generate(&u, AG_SPECULATE_ALWAYS, &out);
    free(out.logits);
    assert_true(out.stats[0].n_accepted > 0); /* it samples differently: without penalties */
    u.sampler.frequency_penalty = 0;
    u.sampler.repetition_penalty = 1;
    generate(&u, AG_SPECULATE_ALWAYS, &out);
    free(out.logits);
    /* A prompt that is read in other steps rounds differently. */
    for (size_t turn = 0; turn < TURNS; turn++) {
        assert_true(out.stats[turn].n_drafted >= 40);
        assert_true(out.stats[turn].n_accepted * 10 >= out.stats[turn].n_drafted * 6);
    }
}

/* Tokens that were consumed elsewhere are unknown; tokens after them are not. */
static void draft_model_continues_after_unknown_tokens(void **state) {
    (void)state;
    static seen out;
    setup u = {.model = models[1], .draft = models[1], .draft_seq_len = 400};
    ag_generate_params p = ag_generate_defaults();
    ag_sampler_params greedy = ag_sampler_defaults();
    ag_generate_stats before, gap, behind;
    ag_error err;
    int32_t prompt[20];
    for (int32_t i = 0; i < 20; i++) prompt[i] = 3 + i * i * 7 % 200;
    greedy.temperature = 0;
    greedy.repetition_penalty = 1;
    must(ag_sampler_create(&greedy, (int32_t)ag_model_get_info(u.model)->n_vocab, &p.sampler, &err),
         &err);
    must(ag_session_create(u.model, NULL, &out.session, &err), &err);
    p.draft = make_draft(&u);
    p.max_tokens = 40;
    p.ignore_eos = true;
    p.speculate = AG_SPECULATE_ALWAYS;
    must(ag_session_generate(out.session, prompt, 20, &p, &before, &err), &err);
    p.speculate = AG_SPECULATE_OFF;
    must(ag_session_generate(out.session, prompt, 9, &p, &gap, &err), &err);
    p.speculate = AG_SPECULATE_ALWAYS;
    for (int32_t i = 0; i < 20; i++) prompt[i] = 4 + i * i * 11 % 200;
    must(ag_session_generate(out.session, prompt, 20, &p, &behind, &err), &err);
    print_message("drafted %zu before, %zu behind\n", (size_t)before.n_drafted,
                  (size_t)behind.n_drafted);
    assert_true(before.n_drafted >= 30 && behind.n_drafted >= 30);
    ag_session_destroy(p.draft);
    ag_session_destroy(out.session);
    ag_sampler_destroy(p.sampler);
}

/* ---- failures ---- */

enum { WRONG_ID = 1 << 20, FAIL_AT = 33 };

/* Sampler filter that allows everything for a number of calls. */
typedef struct failing_filter {
    ag_token_filter base;
    uint32_t mask[4096 / 32];
    size_t n_left;
} failing_filter;

static ag_status failing_mask(ag_token_filter *base, const uint32_t **mask, ag_error *err) {
    failing_filter *f = (failing_filter *)base;
    snprintf(err->msg, sizeof err->msg, "no more");
    *mask = f->mask;
    return f->n_left-- ? AG_OK : AG_INVALID;
}
static bool is_never_free(ag_token_filter *f) {
    (void)f;
    return false;
}
static void ignore_token(ag_token_filter *f, int32_t id) {
    (void)f;
    (void)id;
}
static void ignore_reset(ag_token_filter *f) { (void)f; }
static size_t force_nothing(ag_token_filter *f, int32_t *ids, size_t n) {
    (void)f;
    (void)ids;
    (void)n;
    return 0;
}

/* Generates a repetitive text until a token cannot be shown or chosen; then another text. */
static void generate_failing(bool when_chosen, ag_speculate how, seen *out, size_t *drafted) {
    static const ag_token_filter_ops ops = {.mask = failing_mask,
                                            .is_free = is_never_free,
                                            .accept = ignore_token,
                                            .reset = ignore_reset,
                                            .forced = force_nothing};
    ag_generate_params p = ag_generate_defaults();
    const ag_sampler_params sampling = ag_sampler_defaults();
    const ag_model_info *info = ag_model_get_info(models[0]);
    failing_filter filter = {.base = {&ops, info->n_vocab}, .n_left = FAIL_AT};
    int32_t text[2 * FAIL_AT];
    ag_error err;
    memset(filter.mask, 0xff, sizeof filter.mask);
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < 2 * FAIL_AT; i++) text[i] = 300 + i % 5;
    if (!when_chosen) text[FAIL_AT] = WRONG_ID;
    must(ag_session_create(models[0], NULL, &out->session, &err), &err);
    must(ag_sampler_create(&sampling, (int32_t)info->n_vocab, &p.sampler, &err), &err);
    ag_sampler_replay(p.sampler, text, 2 * FAIL_AT);
    if (when_chosen) must(ag_sampler_set_filter(p.sampler, &filter.base, &err), &err);
    p.tokenizer = tokenizer;
    p.ignore_eos = true;
    p.speculate = how;
    p.on_token = watch;
    p.on_token_user = out;
    assert_int_equal(
        ag_session_generate(out->session, (int32_t[]){304}, 1, &p, &out->stats[0], &err),
        AG_INVALID);
    if (when_chosen) assert_string_equal(err.msg, "no more");
    else assert_non_null(strstr(err.msg, "is not in the vocabulary"));
    *drafted = out->stats[0].n_accepted;
    out->positions[0] = ag_session_position(out->session);
    must(ag_sampler_set_filter(p.sampler, NULL, &err), &err);
    ag_sampler_reset(p.sampler);
    p.max_tokens = 20;
    must(ag_session_generate(out->session, (int32_t[]){7, 8}, 2, &p, &out->stats[1], &err), &err);
    out->positions[1] = ag_session_position(out->session);
    keep_logits(out, info->n_vocab);
    ag_sampler_destroy(p.sampler);
    ag_session_destroy(out->session);
}

/* After any failure the session is at the end of the shown text, as without drafts. */
static void failed_verify_keeps_shown_tokens(void **state) {
    (void)state;
    static seen want, have;
    for (int when_chosen = 0; when_chosen < 2; when_chosen++) {
        size_t drafted;
        generate_failing(when_chosen, AG_SPECULATE_OFF, &want, &drafted);
        assert_int_equal(want.positions[0], 1 + FAIL_AT - when_chosen);
        generate_failing(when_chosen, AG_SPECULATE_ALWAYS, &have, &drafted);
        assert_true(drafted > 0);
        assert_int_equal(have.positions[0], want.positions[0]);
        assert_int_equal(have.positions[1], want.positions[1]);
        assert_int_equal(have.n_ids, want.n_ids);
        assert_memory_equal(have.ids, want.ids, want.n_ids * sizeof *want.ids);
        const size_t n_vocab = ag_model_get_info(models[0])->n_vocab;
        assert_memory_equal(have.logits, want.logits, n_vocab * sizeof(float));
        free(have.logits);
        free(want.logits);
    }
}

/* ---- constraints ---- */

static const char schema[] =
    "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {"
    "\"name_of_the_animal\": {\"enum\": [\"hedgehog\", \"hippopotamus\", \"elephant\"]},"
    "\"number_of_legs\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 9},"
    "\"where_it_lives\": {\"type\": \"string\", \"maxLength\": 12},"
    "\"does_it_sleep_in_winter\": {\"type\": \"boolean\"}},"
    "\"required\": [\"name_of_the_animal\", \"number_of_legs\", \"where_it_lives\","
    "\"does_it_sleep_in_winter\"]}";

static void generate_constrained(const ag_constraint *c, unsigned seed, ag_speculate how,
                                 seen *out) {
    ag_constraint *own;
    ag_sampler_params sampling = ag_sampler_defaults();
    ag_generate_params p = ag_generate_defaults();
    const ag_model_info *info = ag_model_get_info(models[0]);
    ag_error err;
    ag_ids ids = {0};
    sampling.seed = seed;
    sampling.temperature = (float)(seed % 3) * 0.5f;
    memset(out, 0, sizeof *out);
    must(ag_session_create(models[0], NULL, &out->session, &err), &err);
    must(ag_sampler_create(&sampling, (int32_t)info->n_vocab, &p.sampler, &err), &err);
    must(ag_constraint_clone(c, &own, &err), &err);
    must(ag_sampler_constrain(p.sampler, own, &err), &err);
    must(ag_tokenizer_encode(tokenizer, "An animal: ", 11, AG_ENCODE_BOS, &ids, &err), &err);
    p.tokenizer = tokenizer;
    p.max_tokens = 150;
    p.speculate = how;
    p.on_token = watch;
    p.on_token_user = out;
    must(ag_session_generate(out->session, ids.data, ids.n, &p, &out->stats[0], &err), &err);
    ag_ids_free(&ids);
    ag_sampler_destroy(p.sampler);
    ag_constraint_destroy(own);
    ag_session_destroy(out->session);
}

/* Checks that drafts do not change constrained texts. n_tokens, n_steps: of texts with drafts. */
static void compare_constrained(const ag_constraint_params *params, size_t *n_tokens,
                                size_t *n_steps) {
    static seen want, have;
    const ag_model_info *info = ag_model_get_info(models[0]);
    ag_constraint_vocab *vocab;
    ag_constraint *c;
    ag_error err;
    *n_tokens = *n_steps = 0;
    must(ag_constraint_vocab_create(tokenizer, info->n_vocab, info->eos_ids, info->n_eos, &vocab,
                                    &err),
         &err);
    must(ag_constraint_create(vocab, params, &c, &err), &err);
    for (unsigned seed = 1; seed <= 12; seed++) {
        generate_constrained(c, seed, AG_SPECULATE_OFF, &want);
        generate_constrained(c, seed, seed % 2 ? AG_SPECULATE_ALWAYS : AG_SPECULATE_AUTO, &have);
        const ag_generate_stats *s = &have.stats[0];
        assert_int_equal(s->finish, want.stats[0].finish);
        assert_int_equal(have.n_ids, want.n_ids);
        assert_memory_equal(have.ids, want.ids, want.n_ids * sizeof *want.ids);
        assert_memory_equal(have.text, want.text, want.n_text);
        if (seed % 2 == 0) continue;
        *n_tokens += s->n_generated;
        *n_steps += s->n_generated - s->n_accepted;
    }
    print_message("%zu tokens in %zu steps\n", *n_tokens, *n_steps);
    ag_constraint_destroy(c);
    ag_constraint_vocab_destroy(vocab);
}

/* Names of a schema's properties are forced tokens: they are fed as drafts. */
static void forced_tokens_are_fed_as_drafts(void **state) {
    ag_constraint_params params = ag_constraint_defaults(AG_CONSTRAINT_JSON_SCHEMA);
    size_t n_tokens, n_steps;
    (void)state;
    params.text = schema;
    params.len = strlen(schema);
    params.spacing = AG_JSON_COMPACT;
    compare_constrained(&params, &n_tokens, &n_steps);
    assert_true(n_steps * 3 < n_tokens * 2);
}

/* A trigger fires in drafts as it does without them. */
static void drafts_keep_texts_with_a_trigger(void **state) {
    static const char grammar[] =
        "%trigger {\"anywhere\": [\"\\\"th\\\"\"]}\n"
        "root ::= \"th\" (\"e \" | \"at \") [a-z]{3,8} \" is the number of legs \" [0-9]{2} \".\"";
    ag_constraint_params params = ag_constraint_defaults(AG_CONSTRAINT_GRAMMAR);
    size_t n_tokens, n_steps;
    (void)state;
    params.text = grammar;
    params.len = strlen(grammar);
    compare_constrained(&params, &n_tokens, &n_steps);
    assert_true(n_steps < n_tokens);
}

static void rejects_a_session_as_its_own_draft_model(void **state) {
    (void)state;
    ag_session *s;
    ag_error err;
    ag_generate_params p = ag_generate_defaults();
    const ag_sampler_params sampling = ag_sampler_defaults();
    const int32_t prompt[] = {3, 4, 5};
    must(ag_session_create(models[1], NULL, &s, &err), &err);
    must(ag_sampler_create(&sampling, (int32_t)ag_model_get_info(models[1])->n_vocab, &p.sampler,
                           &err),
         &err);
    p.draft = s;
    assert_int_equal(ag_session_generate(s, prompt, 3, &p, NULL, &err), AG_INVALID);
    assert_string_equal(err.msg, "draft is the session itself: it must be another session");
    ag_sampler_destroy(p.sampler);
    ag_session_destroy(s);
}

typedef struct allocations {
    size_t n_tokens, at_first, at_last;
} allocations;

static bool count_allocations(void *user, int32_t id, const char *text, size_t len) {
    allocations *a = user;
    (void)id;
    (void)text;
    (void)len;
    a->at_last = ag_allocation_count();
    if (!a->n_tokens++) a->at_first = a->at_last;
    return true;
}

static void drafting_does_not_allocate(void **state) {
    (void)state;
    const ag_backend_params params = {.n_threads = 1};
    ag_backend *fresh; /* a backend whose scratch nothing else has grown */
    ag_model *tiny;
    ag_error err;
    must(ag_backend_create(&params, &fresh, &err), &err);
    must(ag_model_synthetic(fresh, "tiny", NULL, &tiny, &err), &err);
    ag_session_params sp = ag_session_defaults();
    ag_sampler_params greedy = ag_sampler_defaults();
    ag_generate_params p = ag_generate_defaults();
    ag_generate_stats stats;
    allocations a = {0};
    ag_session *s;
    int32_t text[1000];
    for (int32_t i = 0; i < 1000; i++) text[i] = i % 5 ? i % 9 : i % 100;
    greedy.temperature = 0;
    sp.max_seq_len = 1100;
    must(ag_session_create(tiny, &sp, &s, &err), &err);
    must(ag_sampler_create(&greedy, (int32_t)ag_model_get_info(tiny)->n_vocab, &p.sampler, &err),
         &err);
    ag_sampler_replay(p.sampler, text, 1000);
    p.max_tokens = 1000;
    p.ignore_eos = true;
    p.draft_max = 14;
    p.speculate = AG_SPECULATE_ALWAYS;
    p.on_token = count_allocations;
    p.on_token_user = &a;
    must(ag_session_generate(s, text, 1, &p, &stats, &err), &err);
    assert_true(stats.n_accepted > 200);
    assert_int_equal(a.at_last, a.at_first);
    ag_sampler_destroy(p.sampler);
    ag_session_destroy(s);
    ag_model_destroy(tiny);
    ag_backend_destroy(fresh);
}

/* Runs the one test whose result does not depend on the backend's limits. */
static int run_on_device(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_do_not_change_the_text)};
    return cmocka_run_group_tests_name("speculate on a device", tests, load, unload);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "opencl")) {
        backend_name = *++argv;
        argc--;
    }
    backend = open_backend(backend_name, 1);
    if (!backend) return EXIT_SKIPPED;
    if (argc > 1) first_seed = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2) n_seeds = (unsigned)strtoul(argv[2], NULL, 10);
    if (backend_name) return run_on_device();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_do_not_change_the_text),
        cmocka_unit_test(draft_model_follows_the_text),
        cmocka_unit_test(draft_model_continues_after_unknown_tokens),
        cmocka_unit_test(failed_verify_keeps_shown_tokens),
        cmocka_unit_test(forced_tokens_are_fed_as_drafts),
        cmocka_unit_test(drafts_keep_texts_with_a_trigger),
        cmocka_unit_test(rejects_a_session_as_its_own_draft_model),
        cmocka_unit_test(drafting_does_not_allocate),
    };
    return cmocka_run_group_tests_name("speculate", tests, load, unload);
}
