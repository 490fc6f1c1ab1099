/* SPDX-License-Identifier: Apache-2.0 */
#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL AG_SOURCE_DIR "/models/demo"

static ag_backend *backend;
static ag_model *model;
static ag_tokenizer *tokenizer;
static ag_error err;

static void must(ag_status st) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err.msg);
}

static int load(void **state) {
    (void)state;
    ag_backend_params bp = {.n_threads = 2};
    must(ag_backend_create(&bp, &backend, &err));
    must(ag_model_load(backend, MODEL, NULL, &model, &err));
    must(ag_tokenizer_load(MODEL, &tokenizer, &err));
    return 0;
}

static int unload(void **state) {
    (void)state;
    ag_tokenizer_destroy(tokenizer);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

/* Output of a generation as a caller sees it. */
typedef struct seen {
    char text[4096];
    size_t len;
    int32_t ids[512];
    size_t n_ids;
    size_t cancel_after; /* tokens; 0: never */
    ag_generate_stats stats;
} seen;

static bool watch(void *user, int32_t id, const char *text, size_t len) {
    seen *s = user;
    assert_true(s->len + len < sizeof s->text);
    memcpy(s->text + s->len, text, len);
    s->len += len;
    s->text[s->len] = '\0';
    if (id >= 0) s->ids[s->n_ids++] = id;
    return !s->cancel_after || s->n_ids < s->cancel_after;
}

typedef struct setup {
    const char *prompt;
    uint32_t max_seq_len;
    float temperature;
    ag_generate_params p;
} setup;

static setup defaults(const char *prompt) {
    setup s = {.prompt = prompt, .max_seq_len = 256, .p = ag_generate_defaults()};
    s.p.max_tokens = 24;
    s.p.tokenizer = tokenizer;
    return s;
}

static ag_status run_with(setup *u, seen *out, float repetition_penalty) {
    ag_session_params sp = ag_session_defaults();
    sp.max_seq_len = u->max_seq_len;
    ag_session *session;
    must(ag_session_create(model, &sp, &session, &err));
    ag_sampler_params smp = ag_sampler_defaults();
    smp.temperature = u->temperature;
    smp.seed = 7;
    smp.repetition_penalty = repetition_penalty;
    must(ag_sampler_create(&smp, (int32_t)ag_model_get_info(model)->n_vocab, &u->p.sampler, &err));
    ag_ids ids = {0};
    must(ag_tokenizer_encode(tokenizer, u->prompt, strlen(u->prompt), AG_ENCODE_BOS, &ids, &err));
    u->p.on_token = watch;
    u->p.on_token_user = out;
    ag_status st = ag_session_generate(session, ids.data, ids.n, &u->p, &out->stats, &err);
    ag_ids_free(&ids);
    ag_sampler_destroy(u->p.sampler);
    ag_session_destroy(session);
    return st;
}

static ag_status run(setup *u, seen *out) {
    return run_with(u, out, ag_sampler_defaults().repetition_penalty);
}

static void max_tokens_ends_the_text(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    seen s = {0};
    must(run(&u, &s));
    assert_int_equal(s.stats.finish, AG_FINISH_MAX_TOKENS);
    assert_string_equal(ag_finish_reason(s.stats.finish), "length");
    assert_int_equal(s.stats.n_generated, 24);
    assert_int_equal(s.n_ids, 24);
    assert_int_equal(s.stats.last_id, s.ids[23]); /* chosen, not fed */
    assert_int_equal(s.stats.n_prompt, 5);
    ag_text whole = {0};
    must(ag_tokenizer_decode(tokenizer, s.ids, s.n_ids, false, &whole, &err));
    assert_string_equal(whole.data, s.text);
    ag_text_free(&whole);
}

/* The largest logit of each row that a greedy generation chose from, and its token. */
typedef struct rows {
    int32_t best[200];
    size_t n, cancel_at; /* cancel_at: number of rows; 0: never */
} rows;

static bool note_row(void *user, size_t i, const float *logits) {
    rows *r = user;
    const size_t n_vocab = ag_model_get_info(model)->n_vocab;
    size_t best = 0;
    assert_int_equal(i, 0);
    for (size_t k = 1; k < n_vocab; k++) best = logits[k] > logits[best] ? k : best;
    r->best[r->n++] = (int32_t)best;
    return r->n != r->cancel_at;
}

/* Drafts, which such a text gets otherwise, are not used. */
static void logits_of_every_choice_are_shown(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    u.p.max_tokens = 200;
    u.p.ignore_eos = true;
    rows r = {.n = 0};
    seen drafted = {0}, s = {0};
    u.p.speculate = AG_SPECULATE_ALWAYS;
    must(run_with(&u, &drafted, 1));
    assert_true(drafted.stats.n_drafted > 0);
    u.p.on_logits = note_row;
    u.p.on_logits_user = &r;
    must(run_with(&u, &s, 1));
    assert_int_equal(s.stats.n_drafted, 0);
    assert_string_equal(s.text, drafted.text);
    assert_int_equal(r.n, s.n_ids);
    assert_memory_equal(r.best, s.ids, s.n_ids * sizeof *s.ids);
}

static void callback_for_logits_cancels_generation(void **state) {
    (void)state;
    for (size_t n = 1; n <= 3; n++) {
        setup u = defaults("Once upon a time");
        rows r = {.cancel_at = n};
        u.p.on_logits = note_row;
        u.p.on_logits_user = &r;
        seen s = {0};
        must(run_with(&u, &s, 1));
        assert_int_equal(s.stats.finish, AG_FINISH_CANCELLED);
        assert_int_equal(s.n_ids, n - 1);
    }
}

static void zero_max_tokens_only_prefills(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    u.p.max_tokens = 0;
    seen s = {0};
    must(run(&u, &s));
    assert_int_equal(s.n_ids, 0);
    assert_int_equal(s.stats.n_generated, 0);
    assert_int_equal(s.stats.last_id, -1);
    assert_true(s.stats.kv_bytes > 0);
}

/* Prefill and generation in one call or in two: a greedy text is the same. */
static void continues_from_the_logits_without_a_prompt(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    seen whole = {0}, rest = {0};
    must(run(&u, &whole));
    ag_session *session;
    must(ag_session_create(model, NULL, &session, &err));
    ag_sampler_params smp = ag_sampler_defaults();
    smp.temperature = 0;
    must(ag_sampler_create(&smp, (int32_t)ag_model_get_info(model)->n_vocab, &u.p.sampler, &err));
    u.p.on_token_user = &rest;
    assert_int_equal(ag_session_generate(session, NULL, 0, &u.p, NULL, &err), AG_INVALID);
    assert_string_equal(err.msg, "the list of tokens is empty");
    ag_ids ids = {0};
    must(ag_tokenizer_encode(tokenizer, u.prompt, strlen(u.prompt), AG_ENCODE_BOS, &ids, &err));
    must(ag_session_prefill(session, ids.data, ids.n, NULL, NULL, &err));
    for (size_t i = 0; i < ids.n; i++) ag_sampler_accept(u.p.sampler, ids.data[i]);
    must(ag_session_generate(session, NULL, 0, &u.p, &rest.stats, &err));
    assert_int_equal(rest.stats.n_prompt, 0);
    assert_string_equal(rest.text, whole.text);
    ag_ids_free(&ids);
    ag_sampler_destroy(u.p.sampler);
    ag_session_destroy(session);
}

static void full_context_ends_the_text(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    u.max_seq_len = 16;
    u.p.max_tokens = -1;
    u.p.ignore_eos = true;
    seen s = {0};
    must(run(&u, &s));
    assert_int_equal(s.stats.finish, AG_FINISH_CONTEXT);
    assert_string_equal(ag_finish_reason(s.stats.finish), "length");
    assert_int_equal(s.stats.n_generated,
                     12); /* 5 + 11 fill the cache; the 12th token needs no slot */
    u.max_seq_len = 4;
    assert_int_equal(run(&u, &s), AG_LIMIT);
}

/* The model was trained on this format, whose answers end with an eos token. */
static void eos_token_ends_the_text(void **state) {
    (void)state;
    setup u = defaults("The secret of Tom's red box is 123 blue. "
                       "Question: What is the secret of Tom's red box? Answer:");
    u.p.max_tokens = -1;
    u.max_seq_len = 2048;
    seen s = {0};
    u.p.max_tokens = 400;
    must(run(&u, &s));
    assert_int_equal(s.stats.finish, AG_FINISH_EOS);
    assert_int_equal(s.n_ids, s.stats.n_generated);
    seen on = {0};
    u.p.ignore_eos = true;
    u.p.max_tokens = (int64_t)s.stats.n_generated + 2;
    must(run(&u, &on));
    assert_int_equal(on.stats.finish, AG_FINISH_MAX_TOKENS);
    assert_memory_equal(on.ids, s.ids, s.n_ids * sizeof *s.ids);
    const ag_model_info *info = ag_model_get_info(model);
    bool eos = false;
    for (size_t i = 0; i < info->n_eos; i++) eos |= info->eos_ids[i] == on.ids[s.n_ids];
    assert_true(eos);
}

static void stop_string_is_removed_at_any_token_boundary(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    seen whole = {0};
    must(run(&u, &whole));
    /* Stop strings at every position of the text: inside tokens and across them. */
    for (size_t at = 1; at + 4 < whole.len; at += 7) {
        char stop[5] = {0};
        memcpy(stop, whole.text + at, 4);
        const char *stops[] = {"not in the text", stop};
        u.p.stop = stops;
        u.p.n_stop = 2;
        seen s = {0};
        must(run(&u, &s));
        assert_int_equal(s.stats.finish, AG_FINISH_STOP_STRING);
        const char *first = strstr(whole.text, stop);
        assert_int_equal(s.len, (size_t)(first - whole.text));
        assert_memory_equal(s.text, whole.text, s.len);
    }
}

static void pending_text_is_shown_at_the_end(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    seen whole = {0};
    must(run(&u, &whole));
    char stop[64];
    strcpy(stop, whole.text + whole.len - 6);
    strcat(stop, "#"); /* starts at the end of the text and is never completed */
    const char *stops[] = {stop};
    u.p.stop = stops;
    u.p.n_stop = 1;
    seen s = {0};
    must(run(&u, &s));
    assert_int_equal(s.stats.finish, AG_FINISH_MAX_TOKENS);
    assert_string_equal(s.text, whole.text);
}

static void callback_cancels_generation(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    seen s = {.cancel_after = 3};
    must(run(&u, &s));
    assert_int_equal(s.stats.finish, AG_FINISH_CANCELLED);
    assert_int_equal(s.n_ids, 3);
    assert_string_equal(ag_finish_reason(s.stats.finish), "cancelled");
}

static bool never(void *user, uint64_t done, uint64_t total) {
    (void)user, (void)done, (void)total;
    return false;
}

static void cancelled_prefill_ends_without_error(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    u.p.progress = never;
    seen s = {0};
    must(run(&u, &s));
    assert_int_equal(s.stats.finish, AG_FINISH_CANCELLED);
    assert_int_equal(s.n_ids, 0);
}

static void rejects_invalid_parameters(void **state) {
    (void)state;
    setup u = defaults("Once upon a time");
    const char *stops[] = {""};
    seen s = {0};
    u.p.stop = stops;
    u.p.n_stop = 1;
    assert_int_equal(run(&u, &s), AG_INVALID);
    stops[0] = "x";
    u.p.tokenizer = NULL;
    assert_int_equal(run(&u, &s), AG_INVALID);
    u = defaults("Once upon a time");
    u.p.max_tokens = -2;
    assert_int_equal(run(&u, &s), AG_INVALID);
}

static void equal_seeds_give_equal_texts(void **state) {
    (void)state;
    setup u = defaults("The old king had three sons");
    u.temperature = 1.0f;
    seen a = {0}, b = {0};
    must(run(&u, &a));
    must(run(&u, &b));
    assert_string_equal(a.text, b.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_tokens_ends_the_text),
        cmocka_unit_test(logits_of_every_choice_are_shown),
        cmocka_unit_test(callback_for_logits_cancels_generation),
        cmocka_unit_test(zero_max_tokens_only_prefills),
        cmocka_unit_test(continues_from_the_logits_without_a_prompt),
        cmocka_unit_test(full_context_ends_the_text),
        cmocka_unit_test(eos_token_ends_the_text),
        cmocka_unit_test(stop_string_is_removed_at_any_token_boundary),
        cmocka_unit_test(pending_text_is_shown_at_the_end),
        cmocka_unit_test(callback_cancels_generation),
        cmocka_unit_test(cancelled_prefill_ends_without_error),
        cmocka_unit_test(rejects_invalid_parameters),
        cmocka_unit_test(equal_seeds_give_equal_texts),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
