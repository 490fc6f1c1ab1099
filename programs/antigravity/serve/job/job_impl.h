/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a run share. */
#ifndef ANTIGRAVITY_SERVE_JOB_JOB_IMPL_H
#define ANTIGRAVITY_SERVE_JOB_JOB_IMPL_H

#include "infill.h"
#include "job.h"
#include "serve/request/http_request.h"

#include <stdatomic.h>

/* Prompts of a request that are with the engine at the same time. */
enum { JOB_PROMPTS_AT_ONCE = 16, JOB_MAX_PROMPTS = 2048, JOB_MAX_ANSWERS = 64 };

typedef struct job_prompt job_prompt;

/* What the engine said, on its way to the loop. */
typedef struct job_event {
    loop_task task;
    job_prompt *prompt;
    ag_request_event event; /* its pointers point behind this structure */
    ag_error error;
} job_event;

/* One prompt: one request to the engine. */
struct job_prompt {
    serve_job *job;
    size_t index;
    ag_ids ids;
    ag_constraint *constraint; /* the engine's, once submitted */
    ag_request_id id;
    bool is_running;
    atomic_bool lost_event; /* an event did not find memory */
    job_event ended;        /* the last event never needs memory */
};

/* How one answer is read. */
typedef struct answer_reader {
    ag_chat_parser *parser; /* NULL: its text is the content */
    size_t n_reported;      /* tokens of the answer that went with an event */
    bool is_truncated;      /* nothing more is taken of it: one_call */
    bool has_ended;
} answer_reader;

struct serve_job {
    serve_job_view view; /* first: protocols have a pointer to it */
    serve_job *next, *previous;
    serve_http_request *http;
    const serve_protocol *protocol;
    serve_request request;
    ag_served_model *model;
    char *model_name;
    ag_request_params params; /* of each prompt, but for the prompt */
    const char **stop;        /* the client's, then the template's */
    size_t n_client_stops;
    int32_t infill_stops[INFILL_STOPS]; /* what ends a text before a suffix */
    ag_chat *chat;
    size_t restored_bytes; /* bytes of it that are answers of other requests */
    job_prompt *prompts;
    size_t n_prompts, n_submitted, n_ended;
    answer_reader *readers; /* [n_answers] */
    bool is_listed, has_begun, is_streaming, is_over, is_cancelled;
    size_t n_too_long; /* tokens of a prompt that does not fit into the context, or 0 */
    double last_write; /* when something was sent last */
    ag_error error;    /* the first that ended a prompt */
    ag_status status;
};

/* run_answer.c: what the engine said of the answers of a prompt. False: out of memory, or what the
 * model wrote cannot be read; run->error says so. */
bool job_add_token(serve_job *job, size_t answer, const ag_request_event *e);
bool job_end_answer(serve_job *job, size_t answer, const ag_request_event *e);
/* As many as x.n_answers, all empty. False: out of memory. */
bool job_create_answers(serve_job *job);
void job_free_answers(serve_job *job);

/* run_settings.c: fills run->params, but for the prompts. constrained: the answer says itself where
 * it ends. */
bool job_apply_settings(serve_job *job, bool constrained, serve_error *e);

/* run_write.c: to the protocol, in a stream. */
void job_write_event(serve_job *job, const serve_event *e);

#endif
