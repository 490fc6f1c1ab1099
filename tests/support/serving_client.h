/* SPDX-License-Identifier: Apache-2.0 */
/* Client of an ag_serving: sends a request, collects its events and waits for its end. */
#ifndef AG_TESTS_SUPPORT_SERVING_CLIENT_H
#define AG_TESTS_SUPPORT_SERVING_CLIENT_H

#include <antigravity/serving.h>
#include <pthread.h>

enum { CLIENT_TOKENS = 1024, CLIENT_ANSWERS = 4 };

/* Events of one answer. */
typedef struct client_answer {
    int32_t ids[CLIENT_TOKENS];
    float logprobs[CLIENT_TOKENS];
    ag_logprob first_top[20]; /* most likely alternatives of the first token */
    size_t n;
    char text[16384];
    size_t len;
    bool ended;
    ag_finish finish;
    size_t stop, n_generated, n_ids;
} client_answer;

typedef struct client {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    client_answer answers[CLIENT_ANSWERS];
    size_t n_prompt, n_cached, n_read, n_reads, n_events;
    size_t behind_end;                 /* events after the last one */
    int32_t prompt_ids[CLIENT_TOKENS]; /* with prompt_logprobs */
    float prompt_logprobs[CLIENT_TOKENS];
    ag_logprob prompt_top[CLIENT_TOKENS]; /* the most likely token; id -1: none */
    size_t n_scored;
    float embedding[1024];
    size_t n_embedding;
    ag_status status;
    ag_error error;
    double swap_wait_s;
    bool started, ended;
    void (*on_token)(struct client *c); /* called on the engine thread; NULL: none */
    void *user;
    ag_serving *serving;
    ag_request_id id;
} client;

void client_init(client *c);
void client_destroy(client *c);
/* Submits p with the client's event callback. */
ag_status client_send(client *c, ag_serving *s, ag_request_params *p, ag_error *err);
/* Waits for the last event. Returns false after some minutes. */
bool client_wait(client *c);
/* Waits until answer 0 has n tokens or the request has ended. */
void client_wait_tokens(client *c, size_t n);

#endif
