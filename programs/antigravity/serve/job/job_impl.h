/* SPDX-License-Identifier: Apache-2.0 */
/* State of a job, shared by the files job*.c. */
#ifndef ANTIGRAVITY_SERVE_JOB_JOB_IMPL_H
#define ANTIGRAVITY_SERVE_JOB_JOB_IMPL_H

#include "../request/http_request.h"
#include "infill.h"
#include "job.h"

#include <stdatomic.h>

/* JOB_PROMPTS_AT_ONCE: prompts of one job that the engine has at a time. */
enum { JOB_PROMPTS_AT_ONCE = 16, JOB_MAX_PROMPTS = 2048, JOB_MAX_ANSWERS = 64 };

typedef struct job_prompt job_prompt;

/* A copy of an engine event on its way to the event loop. */
typedef struct job_event {
    loop_task task;
    job_prompt *prompt;
    ag_request_event event; /* its pointers point after this structure */
    ag_error error;
} job_event;

/* One prompt: one request to the engine. */
struct job_prompt {
    serve_job *job;
    size_t index;
    ag_ids ids;
    ag_constraint *constraint; /* owned until submitted, then the engine's */
    ag_request_id id;
    bool is_running;
    bool hides_first; /* the first token is not in the echo: the tokenizer added it to a text */
    atomic_bool lost_event; /* there was no memory for an event */
    job_event ended;        /* the last event; preallocated, so it never needs memory */
};

/* Parser state of one answer. */
typedef struct answer_reader {
    ag_chat_parser *parser; /* NULL: the text is the content */
    ag_decoder *decoder;    /* counts n_chars: TEXT with logprobs; else NULL */
    size_t n_chars;         /* characters of the text of all tokens */
    size_t n_reported;      /* tokens that an event has carried */
    bool is_truncated;      /* the rest of the answer is ignored: one_call */
    bool has_ended;
} answer_reader;

struct serve_job {
    serve_job_view view; /* must be first: protocols have a pointer to it */
    serve_job *next, *previous;
    serve_http_request *http;
    const serve_protocol *protocol;
    serve_request request;
    ag_served_model *model;
    char *model_name;
    ag_request_params params; /* for every prompt; prompt and constraint are set later */
    const char **stop;        /* the client's stop strings, then the template's */
    size_t n_client_stops;
    int32_t infill_stops[INFILL_STOPS]; /* ids that end the middle, with a suffix */
    ag_chat *chat;
    size_t restored_bytes; /* bytes of `chat` that hold restored answers */
    job_prompt *prompts;
    size_t n_prompts, n_submitted, n_ended;
    answer_reader *readers; /* [n_answers] */
    bool is_listed, has_begun, is_streaming, is_over, is_cancelled;
    double swap_wait_s; /* positive: the model may be loaded after this time */
    double last_write;  /* time of the last write to the stream */
    ag_error error;     /* the first error of a prompt */
    ag_status status;
};

/* job_answers.c: adds an event to an answer. Fail without memory, or if the model's output cannot
 * be parsed, with job->error. */
bool job_add_token(serve_job *job, size_t answer, const ag_request_event *e);
/* Adds a token of a prompt to all answers to it. */
bool job_add_prompt_token(serve_job *job, size_t prompt, const ag_request_event *e);
bool job_end_answer(serve_job *job, size_t answer, const ag_request_event *e);
/* Allocates view.n_answers empty answers. Fails without memory. */
bool job_create_answers(serve_job *job);
void job_free_answers(serve_job *job);

/* job_settings.c: fills job->params, except for the prompt. constrained: the constraint ends the
 * answer, so the template's stop strings do not apply. */
bool job_apply_settings(serve_job *job, bool constrained, serve_error *e);
/* Returns the seconds that are left for the answer, from now on; 0: no limit. */
double job_time_left(const serve_job *job);
/* Fails if a prompt exceeds the context and no policy or memory threshold evicts. The settings are
 * applied. */
bool job_check_lengths(const serve_job *job, serve_error *e);

/* Returns whether the client may set its keep_alive: one that is no admin may only lengthen the
 * time, because others use the model too. */
bool job_may_unload(const serve_job *job);
/* Sets the keep-alive of the model, if the request has one that the client may set. */
void job_keep_alive(const serve_job *job);
/* Sets the error of a model that cannot be loaded: 503 if it may be after swap_wait_s, 500 if its
 * files are wrong. */
void job_set_load_error(const serve_job *job, double swap_wait_s, serve_error *e);

/* job_write.c: passes an event to the protocol if the reply is a stream. */
void job_write_event(serve_job *job, const serve_event *e);

#endif
