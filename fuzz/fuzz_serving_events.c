/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of one engine. Three threads read the input as actions of two bytes: they send requests,
 * cancel them, read statistics and wait. Each request must end with one last event and, unless it
 * was cancelled or lost its place in the queue, with the tokens it asked for. The preset fuzz-tsan
 * builds it without coverage counters, for which threads would race: the target reports to
 * libFuzzer which kinds of requests ended how. */
#include "fuzz.h"

#include "support/tiny_model.h"

#include <antigravity/serving.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CLIENTS = 3, MAX_REQUESTS = 24, MAX_PROMPT = 60, MAX_ACTIONS = 64 };

typedef struct request {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ag_request_id id;
    size_t n_ends, n_tokens, n_wanted;
    uint8_t kind; /* bits of its action */
    bool is_sent, may_fail;
    ag_status status;
} request;

typedef struct client {
    const uint8_t *actions;
    size_t n;
    request requests[MAX_REQUESTS];
    size_t n_requests;
} client;

enum { N_OUTCOMES = 1 << 13 };
#ifdef __linux__
__attribute__((section("__libfuzzer_extra_counters"), used))
#endif
static uint8_t reached[N_OUTCOMES];

/* libFuzzer's hooks of strstr() and others write to one table from all threads. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:__sanitizer_weak_hook_*\n"; }

static char dir[512];
static ag_serving *serving;
static ag_served_model *model;

static void must(bool ok) {
    if (!ok) abort();
}

static void clean_up(void) {
    ag_serving_destroy(serving);
    tiny_model_remove(dir);
}

static void set_up(void) {
    const tiny_model tiny = {.dtype = "F32", .with_tokenizer = true};
    ag_serving_params p = ag_serving_defaults();
    ag_served_model_params mp = {.name = "m", .session = ag_session_defaults()};
    must(tiny_model_write(&tiny, dir, sizeof dir));
    p.backend.n_threads = 1;
    p.max_running = 4;
    p.max_waiting = 8;
    p.step_rows = 32;
    p.prefix_bytes = 1 << 20;
    mp.path = dir;
    mp.model = ag_model_defaults();
    mp.session.max_seq_len = 128;
    must(ag_serving_create(&p, &serving, NULL) == AG_OK);
    must(ag_serving_add_model(serving, &mp, &model, NULL) == AG_OK);
    must(ag_serving_load_model(serving, model, NULL) == AG_OK);
    atexit(clean_up);
}

static void hear(void *user, const ag_request_event *e) {
    request *r = user;
    pthread_mutex_lock(&r->lock);
    must(!r->n_ends);
    if (e->kind == AG_REQUEST_TOKEN && e->id >= 0) r->n_tokens++;
    if (e->kind == AG_REQUEST_ENDED) {
        r->status = e->status;
        r->n_ends++;
        pthread_cond_signal(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
}

static ag_constraint *make_constraint(uint8_t b) {
    const ag_constraint_vocab *vocab;
    ag_constraint *c = NULL;
    ag_constraint_params p = ag_constraint_defaults(AG_CONSTRAINT_REGEX);
    p.text = b & 1 ? "[a-c]*" : "(a|b|[a-z])*";
    p.len = strlen(p.text);
    if (ag_served_model_vocab(model, &vocab, NULL) != AG_OK) return NULL;
    (void)ag_constraint_create(vocab, &p, &c, NULL);
    return c;
}

static void send(client *c, uint8_t b, uint8_t kind) {
    int32_t ids[MAX_PROMPT];
    char scope[2] = {(char)('a' + b % 3), 0};
    ag_error err;
    if (c->n_requests == MAX_REQUESTS) return;
    request *r = &c->requests[c->n_requests++];
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    ag_request_params p = ag_request_defaults(model);
    p.n_prompt = 1 + b % MAX_PROMPT;
    for (size_t i = 0; i < p.n_prompt; i++) ids[i] = (int32_t)(1 + i * (1 + b % 2) % 200);
    p.prompt = ids;
    p.scope = kind & 4 ? scope : NULL;
    p.n_answers = kind & 8 ? 3 : 1;
    p.max_tokens = b % 7;
    p.ignore_eos = true;
    p.logprobs = kind & 16;
    p.n_top = kind & 16 ? 3 : 0;
    p.no_prefix = kind & 32;
    p.deadline_s = kind & 64 && b % 2 ? 0.002 : 0;
    p.constraint = kind & 128 ? make_constraint(b) : NULL;
    p.event = hear;
    p.user = r;
    r->kind = kind >> 2;
    r->n_wanted = (size_t)p.max_tokens * p.n_answers;
    r->may_fail = p.deadline_s > 0 || p.constraint;
    const ag_status st = ag_serving_submit(serving, &p, &r->id, &err);
    must(st == AG_OK || st == AG_BUSY);
    r->is_sent = st == AG_OK;
    if (!r->is_sent) ag_constraint_destroy(p.constraint);
}

static bool count(void *user, const ag_resident_session *h) {
    *(size_t *)user += h->n_tokens;
    return *(size_t *)user < 1000;
}

static void wait_for(request *r) {
    pthread_mutex_lock(&r->lock);
    while (r->is_sent && !r->n_ends) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

static void *run_client(void *user) {
    client *c = user;
    ag_serving_stats stats;
    size_t n = 0;
    for (size_t i = 0; i + 2 <= c->n; i += 2) {
        const uint8_t action = c->actions[i], b = c->actions[i + 1];
        request *r = c->n_requests ? &c->requests[b % c->n_requests] : NULL;
        if ((action & 3) < 2) send(c, b, action);
        else if ((action & 3) == 2 && action & 4) wait_for(r ? r : &c->requests[0]);
        else if ((action & 3) == 2) sched_yield();
        else if (action & 4) ag_serving_get_stats(serving, &stats);
        else if (action & 8) ag_serving_each_session(serving, count, &n);
        else if (r && r->is_sent) {
            pthread_mutex_lock(&r->lock);
            r->may_fail = true;
            pthread_mutex_unlock(&r->lock);
            ag_serving_cancel(serving, r->id);
        }
    }
    for (size_t i = 0; i < c->n_requests; i++) {
        request *r = &c->requests[i];
        wait_for(r);
        const bool lost_place = r->status == AG_BUSY && !r->n_tokens; /* to another client */
        const bool is_complete = r->status == AG_OK && r->n_tokens == r->n_wanted;
        must(!r->is_sent || r->may_fail || lost_place || is_complete);
        pthread_mutex_destroy(&r->lock);
        pthread_cond_destroy(&r->changed);
    }
    return NULL;
}

/* Reports a number for each kind of request, what preceded it, and how it ended. */
static void report_outcomes(const client *c) {
    uint32_t before = 0;
    for (size_t i = 0; i < c->n_requests; i++) {
        const request *r = &c->requests[i];
        const uint32_t outcome = r->kind * 32u + (uint32_t)r->status * 2 + (r->n_tokens > 0);
        reached[outcome % N_OUTCOMES] = 1;
        reached[(outcome * 31 + before * 7) % N_OUTCOMES] = 1;
        before = outcome;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!serving) set_up();
    pthread_t threads[N_CLIENTS];
    client *clients = calloc(N_CLIENTS, sizeof *clients);
    must(clients);
    const size_t share = n / N_CLIENTS < 2 * MAX_ACTIONS ? n / N_CLIENTS : 2 * MAX_ACTIONS;
    for (size_t i = 0; i < N_CLIENTS; i++) {
        clients[i].actions = data + i * share;
        clients[i].n = share;
        must(pthread_create(&threads[i], NULL, run_client, &clients[i]) == 0);
    }
    for (size_t i = 0; i < N_CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        report_outcomes(&clients[i]);
    }
    free(clients);
    return 0;
}
