/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a run share. */
#ifndef ANTIGRAVITY_SERVE_JOB_JOB_IMPL_H
#define ANTIGRAVITY_SERVE_JOB_JOB_IMPL_H

#include "infill.h"
#include "job.h"
#include "serve/request/http_request.h"

#include <stdatomic.h>

/* Prompts of a request that are with the engine at the same time. */
enum { RUN_PROMPTS_AT_ONCE = 16, RUN_MAX_PROMPTS = 2048, RUN_MAX_ANSWERS = 64 };

typedef struct run_prompt run_prompt;

/* What the engine said, on its way to the loop. */
typedef struct run_event {
    loop_task task;
    run_prompt *prompt;
    ag_request_event event; /* its pointers point behind this structure */
    ag_error error;
} run_event;

/* One prompt: one request to the engine. */
struct run_prompt {
    serve_run *run;
    size_t index;
    ag_ids ids;
    ag_constraint *constraint; /* the engine's, once submitted */
    ag_request_id id;
    bool is_running;
    atomic_bool lost; /* an event did not find memory */
    run_event ended;  /* the last event never needs memory */
};

/* How one answer is read. */
typedef struct run_reader {
    ag_chat_parser *parser; /* NULL: its text is the content */
    size_t n_told;          /* tokens of the answer that went with an event */
    bool cut;               /* nothing more is taken of it: one_call */
    bool has_ended;
} run_reader;

struct serve_run {
    serve_exchange x; /* first: protocols have a pointer to it */
    serve_run *next, *before;
    serve_call *call;
    const serve_protocol *protocol;
    serve_request request;
    ag_served_model *model;
    char *model_name;
    ag_request_params params; /* of each prompt, but for the prompt */
    const char **stop;        /* the client's, then the template's */
    size_t n_client_stops;
    int32_t gap_ends[INFILL_STOPS]; /* what ends a text before a suffix */
    ag_chat *chat;
    size_t restored_bytes; /* bytes of it that are answers of other requests */
    run_prompt *prompts;
    size_t n_prompts, n_submitted, n_ended;
    run_reader *readers; /* [n_answers] */
    bool is_listed, has_begun, is_streaming, is_over, cancelled;
    size_t n_too_long; /* tokens of a prompt that does not fit into the context, or 0 */
    double written;    /* when something was sent last */
    ag_error error;    /* the first that ended a prompt */
    ag_status status;
};

/* run_answer.c: what the engine said of the answers of a prompt. False: out of memory, or what the
 * model wrote cannot be read; run->error says so. */
bool run_take_token(serve_run *run, size_t answer, const ag_request_event *e);
bool run_take_end(serve_run *run, size_t answer, const ag_request_event *e);
/* As many as x.n_answers, all empty. False: out of memory. */
bool run_make_answers(serve_run *run);
void run_free_answers(serve_run *run);

/* run_settings.c: fills run->params, but for the prompts. constrained: the answer says itself where
 * it ends. */
bool run_apply_settings(serve_run *run, bool constrained, serve_error *e);

/* run_write.c: to the protocol, in a stream. */
void run_tell(serve_run *run, const serve_event *e);

#endif
