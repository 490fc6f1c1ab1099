/* SPDX-License-Identifier: Apache-2.0 */
/* Serving engine with the bundled model, and its clients, for tests in one file. */
#ifndef AG_SUPPORT_SERVING_DEMO_H
#define AG_SUPPORT_SERVING_DEMO_H

#include "support/serving_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>

#define DEMO AG_SERVED_DEMO
#if defined(__SANITIZE_THREAD__) /* about 15 times slower */
enum { MOST = 18 };
#else
enum { MOST = 40 };
#endif

static ag_serving *serving;
static ag_served_model *demo;
static client clients[MOST];

static inline void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static inline ag_served_model *add_model(const char *name, const char *path) {
    ag_served_model_params m = {
        .name = name, .path = path, .model = ag_model_defaults(), .session = ag_session_defaults()};
    ag_served_model *model;
    ag_error err;
    must(ag_serving_add_model(serving, &m, &model, &err), &err);
    return model;
}

/* max_work 0: the default */
static inline ag_constraint *demo_constraint(ag_constraint_kind kind, const char *text,
                                             size_t max_work) {
    const ag_constraint_vocab *vocab;
    ag_constraint_params p = ag_constraint_defaults(kind);
    ag_constraint *c;
    ag_error err;
    p.text = text;
    p.len = strlen(text);
    if (max_work) p.max_work = max_work;
    must(ag_served_model_vocab(demo, &vocab, &err), &err);
    must(ag_constraint_create(vocab, &p, &c, &err), &err);
    return c;
}

/* Starts an engine without a model. */
static inline void start_engine(const ag_serving_params *p) {
    ag_error err;
    must(ag_serving_create(p, &serving, &err), &err);
    for (size_t i = 0; i < MOST; i++) client_init(&clients[i]);
}

static inline void start_with(const ag_serving_params *p) {
    start_engine(p);
    demo = add_model("demo", DEMO);
}

static inline int start(void **state) {
    (void)state;
    start_with(NULL);
    return 0;
}

static inline int stop(void **state) {
    (void)state;
    ag_serving_destroy(serving);
    serving = NULL;
    for (size_t i = 0; i < MOST; i++) client_destroy(&clients[i]);
    return 0;
}

static inline ag_ids encode(const char *text) {
    ag_ids ids = {0};
    ag_error err;
    must(ag_tokenizer_encode(ag_served_model_tokenizer(demo), text, strlen(text), AG_ENCODE_BOS,
                             &ids, &err),
         &err);
    return ids;
}

/* Writes pseudo-random ids. */
static inline void fill_ids(int32_t *ids, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        ids[i] = (int32_t)(10 + (seed >> 16) % 3000);
    }
}

/* Returns the number of tokens of the prompt of request i: short, long and around block sizes. */
static inline size_t prompt_length(size_t i) {
    static const size_t lengths[] = {5, 40, 700, 17, 258, 15, 16, 1, 300, 90, 513, 33};
    return lengths[i % 12] + i / 12;
}

static inline ag_request_params request(const int32_t *prompt, size_t n, int64_t max_tokens) {
    ag_request_params p = ag_request_defaults(demo);
    p.prompt = prompt;
    p.n_prompt = n;
    p.max_tokens = max_tokens;
    p.ignore_eos = true;
    return p;
}

static inline void send_request(client *c, ag_request_params *p) {
    ag_error err;
    must(client_send(c, serving, p, &err), &err);
}

static inline void finish(client *c, ag_status want) {
    assert_true(client_wait(c));
    if (c->status != want) fail_msg("%s: %s", ag_status_name(c->status), c->error.msg);
}

static inline void run_request(client *c, ag_request_params *p) {
    client_destroy(c);
    client_init(c);
    send_request(c, p);
    finish(c, AG_OK);
}

static inline void same_answer(const client_answer *have, const client_answer *want, size_t who) {
    if (have->n != want->n) fail_msg("request %zu: %zu tokens, alone %zu", who, have->n, want->n);
    for (size_t i = 0; i < want->n; i++) {
        if (have->ids[i] != want->ids[i])
            fail_msg("request %zu: token %zu is %d, alone %d", who, i, have->ids[i], want->ids[i]);
        if (memcmp(&have->logprobs[i], &want->logprobs[i], sizeof(float)) != 0)
            fail_msg("request %zu: logprob %zu is %.9g, alone %.9g", who, i,
                     (double)have->logprobs[i], (double)want->logprobs[i]);
    }
}

/* ---- conversations ---- */

enum { LONGEST_TALK = 1024 };

/* Conversation of a client. */
typedef struct talk {
    int32_t ids[LONGEST_TALK];
    size_t n;
    unsigned seed;
} talk;

/* Appends n ids that every test model has. */
static inline void say(talk *t, size_t n) {
    assert_true(t->n + n <= LONGEST_TALK);
    for (size_t i = 0; i < n; i++) {
        t->seed = t->seed * 1103515245u + 12345u;
        t->ids[t->n++] = (int32_t)(10 + (t->seed >> 16) % 200);
    }
}

/* Appends the answer to the conversation. */
static inline void hear(talk *t, const client_answer *a) {
    assert_true(t->n + a->n <= LONGEST_TALK);
    memcpy(t->ids + t->n, a->ids, a->n * sizeof *a->ids);
    t->n += a->n;
}

#endif
