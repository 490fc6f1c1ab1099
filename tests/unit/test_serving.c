/* SPDX-License-Identifier: Apache-2.0 */
/* Serving engine: each request gets the tokens that it gets alone, with its own parameters. */
#include "support/serving_demo.h"

#include <time.h>

/* ---- one request ---- */

static void matches_a_session(void **state) {
    ag_generate_params g = ag_generate_defaults();
    ag_sampler_params sampling = *ag_served_model_sampling(demo);
    ag_ids ids = encode("Once upon a time there was a fox");
    ag_session_params sp = ag_session_defaults();
    ag_generate_stats stats;
    ag_backend *be;
    ag_model *model;
    ag_session *session;
    ag_error err;
    (void)state;
    sampling.seed = 7;
    sp.prefill_chunk = 256;
    must(ag_backend_create(NULL, &be, &err), &err);
    must(ag_model_load(be, DEMO, NULL, &model, &err), &err);
    must(ag_session_create(model, &sp, &session, &err), &err);
    must(ag_sampler_create(&sampling, (int32_t)ag_model_get_info(model)->n_vocab, &g.sampler, &err),
         &err);
    g.max_tokens = 40;
    must(ag_session_generate(session, ids.data, ids.n, &g, &stats, &err), &err);

    ag_request_params p = request(ids.data, ids.n, 40);
    p.sampling = sampling;
    p.ignore_eos = false;
    run_request(&clients[0], &p);
    const client_answer *a = &clients[0].answers[0];
    assert_int_equal(a->n_generated, stats.n_generated);
    assert_int_equal(a->ids[a->n - 1], stats.last_id);
    assert_int_equal(a->finish, stats.finish);
    assert_true(a->ended);
    /* The text is the decoded ids. */
    ag_decoder *d;
    ag_text text = {0};
    must(ag_decoder_create(ag_served_model_tokenizer(demo), false, true, &d, &err), &err);
    for (size_t i = 0; i < a->n; i++) must(ag_decoder_push(d, a->ids[i], &text, &err), &err);
    must(ag_decoder_flush(d, &text, &err), &err);
    assert_string_equal(a->text, text.data);
    ag_text_free(&text);
    ag_decoder_destroy(d);
    ag_sampler_destroy(g.sampler);
    ag_session_destroy(session);
    ag_model_destroy(model);
    ag_backend_destroy(be);
    ag_ids_free(&ids);
}

/* ---- several requests ---- */

static ag_request_params mixed_request(size_t i, int32_t *ids) {
    const size_t n = prompt_length(i);
    fill_ids(ids, n, (unsigned)i + 1);
    ag_request_params p = request(ids, n, 12 + (int64_t)(i % 5));
    p.sampling.seed = 100 + i;
    p.sampling.temperature = i % 3 ? 1.0f : 0.0f;
    p.logprobs = true;
    p.no_prefix = true;
    return p;
}

static void compare_with_alone(size_t n) {
    static client_answer together[MOST];
    static int32_t ids[800];
    for (size_t i = 0; i < n; i++) {
        ag_request_params p = mixed_request(i, ids);
        send_request(&clients[i], &p);
    }
    for (size_t i = 0; i < n; i++) {
        finish(&clients[i], AG_OK);
        together[i] = clients[i].answers[0];
    }
    for (size_t i = 0; i < n; i++) {
        ag_request_params p = mixed_request(i, ids);
        run_request(&clients[i], &p);
        same_answer(&together[i], &clients[i].answers[0], i);
    }
}

static void batched_requests_match_single_ones(void **state) {
    (void)state;
    compare_with_alone(12);
}

static void requests_of_several_passes_match_single_ones(void **state) {
    (void)state;
    compare_with_alone(MOST);
}

/* The last rows of these prompts are more than a processor with matrix units computes as it
 * computes one. */
static void prompts_that_end_in_one_step_match_single_ones(void **state) {
    enum { N = 17, LENGTH = 17 };
    static client_answer together[N];
    static int32_t ids[N][LENGTH];
    ag_request_params p[N];
    (void)state;
    fill_ids(ids[0], LENGTH, 70);
    p[0] = request(ids[0], LENGTH, 0);
    p[0].kind = AG_REQUEST_EMBED; /* all its rows are needed */
    send_request(&clients[N], &p[0]);
    for (size_t i = 0; i < N; i++) {
        fill_ids(ids[i], LENGTH, (unsigned)i + 1);
        p[i] = request(ids[i], LENGTH, 2);
        p[i].logprobs = p[i].no_prefix = true;
        send_request(&clients[i], &p[i]);
    }
    for (size_t i = 0; i < N; i++) {
        finish(&clients[i], AG_OK);
        together[i] = clients[i].answers[0];
    }
    finish(&clients[N], AG_OK);
    for (size_t i = 0; i < N; i++) {
        run_request(&clients[i], &p[i]);
        same_answer(&together[i], &clients[i].answers[0], i);
    }
}

static void late_request_does_not_change_others(void **state) {
    static int32_t ids[800], other[700];
    (void)state;
    ag_request_params p = mixed_request(1, ids);
    p.max_tokens = 60;
    run_request(&clients[0], &p);
    send_request(&clients[1], &p);
    client_wait_tokens(&clients[1], 3);
    fill_ids(other, 700, 9);
    ag_request_params q = request(other, 700, 4);
    send_request(&clients[2], &q);
    finish(&clients[1], AG_OK);
    finish(&clients[2], AG_OK);
    same_answer(&clients[1].answers[0], &clients[0].answers[0], 1);
}

/* Tokens of the long prompt that had been read at each token of the other request. */
static size_t read_at[CLIENT_TOKENS];

static void note_reading(client *c) {
    client *other = c->user;
    pthread_mutex_lock(&other->lock);
    read_at[c->answers[0].n - 1] = other->n_read;
    pthread_mutex_unlock(&other->lock);
}

static void long_prompt_delays_a_token_by_one_step_at_most(void **state) {
    static int32_t ids[1900];
    size_t n_between = 0, n_before;
    (void)state;
    fill_ids(ids, 1900, 6);
    ag_request_params p = request(ids, 20, 900), q = request(ids, 1900, 3);
    q.no_prefix = true;
    clients[0].on_token = note_reading;
    clients[0].user = &clients[1];
    send_request(&clients[0], &p);
    client_wait_tokens(&clients[0], 3);
    send_request(&clients[1], &q);
    finish(&clients[1], AG_OK);
    ag_serving_cancel(serving, clients[0].id);
    finish(&clients[0], AG_CANCELLED);
    n_before = clients[0].answers[0].n;
    for (size_t i = 1; i < n_before; i++) {
        assert_true(read_at[i] - read_at[i - 1] <= 511);
        n_between += read_at[i] > 0 && read_at[i] < 1900;
    }
    assert_true(n_between >= 3);             /* decoding continued meanwhile */
    assert_int_equal(clients[1].n_reads, 8); /* chunks of 256 */
}

/* Runs on the engine thread, so the engine finds all requests in its next step. */
static ag_request_params queued[7];
static size_t n_read_before; /* chunks of the long prompts at the first token of the short one */

static void send_queued(client *c) {
    if (c->answers[0].n > 1) return;
    for (size_t i = 0; i < 7; i++) send_request(&clients[i], &queued[i]);
}

static void sum_read(client *c) {
    if (c->answers[0].n > 1) return;
    for (size_t i = 0; i < 6; i++) n_read_before += clients[i].n_read;
}

static void short_prompt_does_not_wait_for_long_ones(void **state) {
    static int32_t ids[1910];
    (void)state;
    fill_ids(ids, 1910, 6);
    for (size_t i = 0; i < 7; i++) {
        queued[i] = request(ids + i, i < 6 ? 1900 : 30, 3);
        queued[i].no_prefix = true;
    }
    ag_request_params first = request(ids, 5, 1);
    n_read_before = 0;
    clients[6].on_token = sum_read;
    clients[7].on_token = send_queued;
    send_request(&clients[7], &first);
    finish(&clients[7], AG_OK);
    for (size_t i = 0; i < 7; i++) finish(&clients[i], AG_OK);
    assert_true(n_read_before <= 6 * 512);
}

/* ---- parameters of a request ---- */

static void each_answer_has_its_own_seed(void **state) {
    int32_t ids[50];
    (void)state;
    fill_ids(ids, 50, 3);
    ag_request_params p = request(ids, 50, 20);
    p.n_answers = 3;
    p.sampling.temperature = 1;
    p.sampling.seed = 11;
    p.logprobs = p.no_prefix = true;
    run_request(&clients[0], &p);
    p.n_answers = 1;
    for (size_t i = 0; i < 3; i++) {
        p.sampling.seed = 11 + i;
        run_request(&clients[1], &p);
        same_answer(&clients[0].answers[i], &clients[1].answers[0], i);
    }
    assert_memory_not_equal(clients[0].answers[0].ids, clients[0].answers[1].ids, 80);
}

static void logprobs_match_the_model_distribution(void **state) {
    int32_t ids[20];
    (void)state;
    fill_ids(ids, 20, 3);
    ag_request_params p = request(ids, 20, 1);
    p.sampling.temperature = 0;
    p.logprobs = true;
    p.n_top = 20;
    run_request(&clients[0], &p);
    const client_answer *a = &clients[0].answers[0];
    double sum = 0;
    for (size_t i = 0; i < 20; i++) {
        assert_true(a->first_top[i].logprob <= (i ? a->first_top[i - 1].logprob : 0));
        sum += exp((double)a->first_top[i].logprob);
    }
    assert_true(sum <= 1 + 1e-5 && sum > 0.05);
    ag_session *session;
    ag_backend *be;
    ag_model *model;
    ag_error err;
    must(ag_backend_create(NULL, &be, &err), &err);
    must(ag_model_load(be, DEMO, NULL, &model, &err), &err);
    must(ag_session_create(model, NULL, &session, &err), &err);
    must(ag_session_prefill(session, ids, 20, NULL, NULL, &err), &err);
    const float *logits = ag_session_logits(session);
    double total = 0;
    for (size_t i = 0; i < ag_model_get_info(model)->n_vocab; i++) total += exp((double)logits[i]);
    assert_float_equal(a->first_top[7].logprob, (double)logits[a->first_top[7].id] - log(total),
                       1e-4);
    assert_float_equal(a->logprobs[0], (double)logits[a->ids[0]] - log(total), 1e-4);
    ag_session_destroy(session);
    ag_model_destroy(model);
    ag_backend_destroy(be);
}

static void stop_string_ends_an_answer_and_is_hidden(void **state) {
    ag_ids ids = encode("Once upon a time");
    ag_request_params p = request(ids.data, ids.n, 60);
    (void)state;
    p.sampling.temperature = 0;
    run_request(&clients[0], &p);
    const client_answer *full = &clients[0].answers[0];
    char word[8] = "";
    memcpy(word, full->text + 30, 5);
    const char *const stops[] = {"\x01never", word};
    p.stop = stops;
    p.n_stop = 2;
    run_request(&clients[1], &p);
    const client_answer *a = &clients[1].answers[0];
    assert_int_equal(a->finish, AG_FINISH_STOP_STRING);
    assert_int_equal(a->stop, 1);
    assert_int_equal(a->len, strstr(full->text, word) - full->text);
    assert_memory_equal(a->text, full->text, a->len);
    assert_true(a->n_ids <= a->n_generated && a->n_generated < full->n);
    ag_ids_free(&ids);
}

static void stop_id_ends_an_answer_like_eos(void **state) {
    int32_t ids[30];
    (void)state;
    fill_ids(ids, 30, 5);
    ag_request_params p = request(ids, 30, 20);
    p.sampling.temperature = 0;
    run_request(&clients[0], &p);
    const client_answer *full = &clients[0].answers[0];
    size_t first = 0;
    while (full->ids[first] != full->ids[9]) first++;
    p.stop_ids = &full->ids[9];
    p.n_stop_ids = 1;
    p.ignore_eos = false;
    run_request(&clients[1], &p);
    const client_answer *a = &clients[1].answers[0];
    assert_int_equal(a->finish, AG_FINISH_EOS);
    assert_true(a->n <= first);
}

static void enforces_token_limits(void **state) {
    static int32_t ids[200];
    (void)state;
    fill_ids(ids, 200, 5);
    ag_request_params p = request(ids, 200, 0);
    run_request(&clients[0], &p);
    assert_int_equal(clients[0].answers[0].n, 0);
    assert_int_equal(clients[0].answers[0].finish, AG_FINISH_MAX_TOKENS);
    p.max_tokens = -1;
    p.session.max_seq_len = 230;
    run_request(&clients[1], &p);
    assert_int_equal(clients[1].answers[0].finish, AG_FINISH_CONTEXT);
    assert_int_equal(clients[1].answers[0].n, 31); /* the last one is not fed */
    p.n_prompt = 200;
    p.session.max_seq_len = 199;
    ag_error err;
    assert_int_equal(client_send(&clients[2], serving, &p, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "200"));
    assert_non_null(strstr(err.msg, "199"));
}

static void answers_obey_constraints(void **state) {
    const char *const choices[] = {"yes", "no", "perhaps"};
    ag_constraint_params cp = ag_constraint_defaults(AG_CONSTRAINT_CHOICES);
    const ag_constraint_vocab *vocab;
    ag_ids ids = encode("Is it?");
    ag_request_params p = request(ids.data, ids.n, 20);
    ag_error err;
    (void)state;
    cp.choices = choices;
    cp.n_choices = 3;
    must(ag_served_model_vocab(demo, &vocab, &err), &err);
    must(ag_constraint_create(vocab, &cp, &p.constraint, &err), &err);
    p.n_answers = 4;
    p.ignore_eos = false;
    p.sampling.temperature = 2;
    run_request(&clients[0], &p);
    for (size_t i = 0; i < 4; i++) {
        const client_answer *a = &clients[0].answers[i];
        bool any = false;
        for (size_t k = 0; k < 3; k++) any = any || !strcmp(a->text, choices[k]);
        if (!any) fail_msg("answer %zu is \"%s\"", i, a->text);
        assert_int_equal(a->finish, AG_FINISH_EOS);
    }
    ag_ids_free(&ids);
}

/* ---- embeddings ---- */

typedef struct hidden_rows {
    float rows[64][256];
    size_t n;
} hidden_rows;

static bool keep_hidden(void *user, size_t i, const float *hidden) {
    hidden_rows *h = user;
    assert_int_equal(i, h->n);
    memcpy(h->rows[h->n++], hidden, sizeof h->rows[0]);
    return true;
}

/* Logits are the products of these states with the rows of the table. */
static void steps_deliver_hidden_states(void **state) {
    static hidden_rows h;
    ag_model_params mp = ag_model_defaults();
    ag_session *session;
    ag_backend *be;
    ag_model *m;
    ag_error err;
    int32_t ids[30];
    float row[256];
    (void)state;
    h.n = 0;
    mp.weights = AG_F32;
    fill_ids(ids, 30, 4);
    must(ag_backend_create(NULL, &be, &err), &err);
    must(ag_model_load(be, DEMO, &mp, &m, &err), &err);
    must(ag_session_create(m, NULL, &session, &err), &err);
    ag_step_item item = {.session = session,
                         .ids = ids,
                         .n = 30,
                         .logits = AG_LOGITS_LAST,
                         .hidden = keep_hidden,
                         .hidden_user = &h};
    must(ag_session_step(&item, 1, &err), &err);
    assert_int_equal(h.n, 30);
    for (int32_t id = 0; id < 4000; id += 401) {
        double dot = 0;
        must(ag_model_embedding(m, id, row, &err), &err);
        for (size_t k = 0; k < 256; k++) dot += (double)row[k] * (double)h.rows[29][k];
        assert_float_equal(dot, ag_session_logits(session)[id], 1e-2);
    }
    ag_session_destroy(session);
    ag_model_destroy(m);
    ag_backend_destroy(be);
}

static void same_vector(const client *have, const float *want, double most) {
    double length = 0;
    assert_int_equal(have->n_embedding, 256);
    for (size_t k = 0; k < 256; k++) {
        assert_float_equal(have->embedding[k], want[k], most);
        length += (double)have->embedding[k] * (double)have->embedding[k];
    }
    assert_float_equal(length, 1, 1e-5);
}

/* Pools rows of a session's hidden states: their mean, or one of them. */
static void pool_rows(const hidden_rows *h, size_t from, size_t to, float *out) {
    double sum[256] = {0}, squares = 0;
    for (size_t i = from; i < to; i++) {
        for (size_t k = 0; k < 256; k++) sum[k] += (double)h->rows[i][k];
    }
    for (size_t k = 0; k < 256; k++) squares += sum[k] * sum[k];
    for (size_t k = 0; k < 256; k++) out[k] = (float)(sum[k] / sqrt(squares));
}

static void embeddings_are_pooled_hidden_states(void **state) {
    static hidden_rows h;
    static const size_t from[] = {0, 59, 0}, to[] = {60, 60, 1};
    static int32_t longer[700];
    float want[256];
    ag_session *session;
    ag_backend *be;
    ag_model *m;
    ag_error err;
    int32_t ids[60];
    (void)state;
    h.n = 0;
    fill_ids(ids, 60, 4);
    must(ag_backend_create(NULL, &be, &err), &err);
    must(ag_model_load(be, DEMO, NULL, &m, &err), &err);
    must(ag_session_create(m, NULL, &session, &err), &err);
    ag_step_item item = {
        .session = session, .ids = ids, .n = 60, .hidden = keep_hidden, .hidden_user = &h};
    must(ag_session_step(&item, 1, &err), &err);
    ag_request_params p = request(ids, 60, -1);
    p.kind = AG_REQUEST_EMBED;
    for (int pooling = AG_EMBEDDING_MEAN; pooling <= AG_EMBEDDING_FIRST; pooling++) {
        p.pooling = (ag_embedding_pooling)pooling;
        run_request(&clients[0], &p);
        pool_rows(&h, from[pooling], to[pooling], want);
        same_vector(&clients[0], want, 1e-5);
        assert_false(clients[0].answers[0].ended);
    }
    /* The prompt has several chunks, and other requests generate meanwhile. */
    fill_ids(longer, 700, 8);
    p = request(longer, 700, -1);
    p.kind = AG_REQUEST_EMBED;
    run_request(&clients[1], &p);
    for (size_t i = 2; i < 6; i++) {
        ag_request_params other = mixed_request(i, longer);
        send_request(&clients[i], &other);
    }
    fill_ids(longer, 700, 8);
    client_destroy(&clients[0]);
    client_init(&clients[0]);
    send_request(&clients[0], &p);
    for (size_t i = 0; i < 6; i++) finish(&clients[i], AG_OK);
    same_vector(&clients[0], clients[1].embedding, 0);
    ag_session_destroy(session);
    ag_model_destroy(m);
    ag_backend_destroy(be);
}

/* ---- rejected requests ---- */

/* Waits until the weights are freed. */
static void wait_unloaded(void) {
    const struct timespec pause = {.tv_nsec = 2000000};
    ag_serving_stats stats;
    for (int i = 0; i < 60000 && ag_served_model_is_loaded(demo); i++) nanosleep(&pause, NULL);
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_models_loaded, 0);
    for (int i = 0; i < 60000 && stats.n_prefix_entries; i++) {
        nanosleep(&pause, NULL);
        ag_serving_get_stats(serving, &stats);
    }
    assert_int_equal(stats.n_prefix_entries, 0);
}

static void weights_are_freed_after_their_keep_alive(void **state) {
    int32_t ids[40];
    (void)state;
    fill_ids(ids, 40, 5);
    ag_request_params p = request(ids, 40, 30);
    p.logprobs = true;
    assert_false(ag_served_model_is_loaded(demo));
    run_request(&clients[0], &p);
    assert_true(ag_served_model_is_loaded(demo));
    assert_true(isinf(ag_served_model_expires_in(demo)));
    ag_serving_keep_alive(serving, demo, 3600);
    assert_true(ag_served_model_expires_in(demo) > 3000);
    assert_true(ag_served_model_is_loaded(demo));
    ag_serving_keep_alive(serving, demo, 0.05);
    wait_unloaded();
    /* A running request keeps them. */
    send_request(&clients[1], &p);
    client_wait_tokens(&clients[1], 2);
    ag_serving_keep_alive(serving, demo, 0);
    finish(&clients[1], AG_OK);
    same_answer(&clients[1].answers[0], &clients[0].answers[0], 1);
    wait_unloaded();
    run_request(&clients[0], &p);
    assert_true(isinf(ag_served_model_expires_in(demo)));
}

static void rejects_invalid_requests_with_a_reason(void **state) {
    const char *const empty[] = {""};
    int32_t ids[4] = {1, 2, 3, 4};
    ag_error err;
    (void)state;
    ag_request_params good = request(ids, 4, 4), p = good;
    p.prompt = NULL;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p = good;
    p.n_prompt = 0;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p = good;
    p.n_answers = 0;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p.n_answers = 65;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p = good;
    p.max_tokens = -2;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p = good;
    p.n_top = 3;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p = good;
    p.stop = empty;
    p.n_stop = 1;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p = good;
    static char word[1026];
    const char *const words[] = {"end", word};
    memset(word, 'a', 1025);
    p.stop = words;
    p.n_stop = 2;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "stop string 2"));
    p = good;
    p.sampling.temperature = NAN;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p = good;
    p.deadline_s = NAN;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    p = good;
    p.model = NULL;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    ids[2] = 4096;
    p = good;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "4096"));
    assert_int_equal(clients[0].n_events, 0);
}

static void finds_models_by_name_and_alias(void **state) {
    ag_served_model_params m = {.name = "demo",
                                .path = DEMO,
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults()};
    ag_served_model *other;
    ag_error err;
    (void)state;
    assert_int_equal(ag_serving_add_model(serving, &m, &other, &err), AG_INVALID);
    assert_null(other);
    m.name = "second";
    err = (ag_error){0};
    must(ag_serving_add_model(serving, &m, &other, &err), &err);
    assert_int_equal(err.status, AG_OK); /* a missing chat template is no error */
    assert_null(ag_served_model_format(other));
    must(ag_serving_add_alias(serving, other, "zweites", &err), &err);
    assert_int_equal(ag_serving_add_alias(serving, demo, "second", &err), AG_INVALID);
    assert_ptr_equal(ag_serving_model(serving, "zweites"), other);
    assert_ptr_equal(ag_serving_model(serving, NULL), demo);
    assert_null(ag_serving_model(serving, "third"));
    assert_int_equal(ag_serving_n_models(serving), 2);
    must(ag_serving_load_model(serving, other, &err), &err);
    m.name = "absent";
    m.path = "/nonexistent";
    assert_int_equal(ag_serving_add_model(serving, &m, &other, &err), AG_NOT_FOUND);
    /* Requests of both models run at the same time. */
    int32_t ids[40];
    fill_ids(ids, 40, 3);
    ag_request_params p = request(ids, 40, 12);
    p.sampling.temperature = 0;
    send_request(&clients[0], &p);
    p.model = ag_serving_model(serving, "second");
    send_request(&clients[1], &p);
    finish(&clients[0], AG_OK);
    finish(&clients[1], AG_OK);
    same_answer(&clients[0].answers[0], &clients[1].answers[0], 1);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(matches_a_session),
        CASE(batched_requests_match_single_ones),
        CASE(requests_of_several_passes_match_single_ones),
        CASE(prompts_that_end_in_one_step_match_single_ones),
        CASE(late_request_does_not_change_others),
        CASE(long_prompt_delays_a_token_by_one_step_at_most),
        CASE(short_prompt_does_not_wait_for_long_ones),
        CASE(each_answer_has_its_own_seed),
        CASE(logprobs_match_the_model_distribution),
        CASE(stop_string_ends_an_answer_and_is_hidden),
        CASE(stop_id_ends_an_answer_like_eos),
        CASE(enforces_token_limits),
        CASE(answers_obey_constraints),
        CASE(steps_deliver_hidden_states),
        CASE(embeddings_are_pooled_hidden_states),
        CASE(weights_are_freed_after_their_keep_alive),
        CASE(rejects_invalid_requests_with_a_reason),
        CASE(finds_models_by_name_and_alias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
