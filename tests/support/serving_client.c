/* SPDX-License-Identifier: Apache-2.0 */
#include "support/serving_client.h"

#include <string.h>
#include <time.h>

void client_init(client *c) {
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
}

void client_destroy(client *c) {
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
}

static void add_token(client *c, const ag_request_event *e) {
    client_answer *a = &c->answers[e->answer];
    if (e->id >= 0 && a->n < CLIENT_TOKENS) {
        if (!a->n && e->n_top) memcpy(a->first_top, e->top, e->n_top * sizeof *e->top);
        a->ids[a->n] = e->id;
        a->logprobs[a->n++] = e->logprob;
    }
    if (e->len > sizeof a->text - 1 - a->len) return;
    if (e->len) memcpy(a->text + a->len, e->text, e->len);
    a->len += e->len;
    a->text[a->len] = '\0';
}

static void add_prompt_token(client *c, const ag_request_event *e) {
    if (c->n_scored == CLIENT_TOKENS) return;
    c->prompt_ids[c->n_scored] = e->id;
    c->prompt_top[c->n_scored] = e->n_top ? e->top[0] : (ag_logprob){.id = -1};
    c->prompt_logprobs[c->n_scored++] = e->logprob;
}

static void end_answer(client_answer *a, const ag_request_event *e) {
    a->ended = true;
    a->finish = e->finish;
    a->stop = e->stop;
    a->n_generated = e->n_generated;
    a->n_ids = e->n_ids;
}

static void take_event(client *c, const ag_request_event *e) {
    c->n_events++;
    if (c->ended) c->behind_end++;
    c->n_prompt = e->n_prompt;
    c->n_cached = e->n_cached;
    c->n_read = e->n_read;
    switch (e->kind) {
    case AG_REQUEST_STARTED:
        c->started = true;
        break;
    case AG_REQUEST_READ:
        c->n_reads++;
        break;
    case AG_REQUEST_PROMPT_TOKEN:
        add_prompt_token(c, e);
        break;
    case AG_REQUEST_TOKEN:
        add_token(c, e);
        break;
    case AG_REQUEST_ANSWERED:
        end_answer(&c->answers[e->answer], e);
        break;
    case AG_REQUEST_EMBEDDED:
        c->n_embedding = e->n_embedding;
        memcpy(c->embedding, e->embedding, e->n_embedding * sizeof *e->embedding);
        break;
    case AG_REQUEST_ENDED:
        c->status = e->status;
        if (e->error) c->error = *e->error;
        c->swap_wait_s = e->swap_wait_s;
        c->ended = true;
        break;
    }
}

static void on_event(void *user, const ag_request_event *e) {
    client *c = user;
    pthread_mutex_lock(&c->lock);
    take_event(c, e);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (e->kind == AG_REQUEST_TOKEN && c->on_token) c->on_token(c);
}

ag_status client_send(client *c, ag_serving *s, ag_request_params *p, ag_error *err) {
    p->event = on_event;
    p->user = c;
    c->serving = s;
    return ag_serving_submit(s, p, &c->id, err);
}

bool client_wait(client *c) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 280;
    int late = 0;
    pthread_mutex_lock(&c->lock);
    while (!c->ended && !late) late = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    const bool ended = c->ended;
    pthread_mutex_unlock(&c->lock);
    return ended;
}

void client_wait_tokens(client *c, size_t n) {
    pthread_mutex_lock(&c->lock);
    while (!c->ended && c->answers[0].n < n) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}
