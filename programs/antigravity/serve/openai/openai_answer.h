/* SPDX-License-Identifier: Apache-2.0 */
/* What the answers of OpenAI's interface, and of those like it, have in common. */
#ifndef ANTIGRAVITY_SERVE_OPENAI_OPENAI_ANSWER_H
#define ANTIGRAVITY_SERVE_OPENAI_OPENAI_ANSWER_H

#include "serve/protocol/protocol.h"

/* {"object": "response.input_tokens", "input_tokens"}: of a request that is only counted. */
json_t *openai_count(serve_job_view *view);
/* The bytes of a token's text, which need not be whole characters. */
json_t *openai_token_bytes(const serve_token *t);
/* Of each token {"token", "logprob", "bytes", "top_logprobs"}. */
json_t *openai_token_list(const serve_token *tokens, size_t n);

/* ---- chat completions and completions ---- */

/* How their objects are called. */
typedef struct openai_object_names {
    const char *id;                    /* what ids begin with: "chatcmpl-" */
    const char *object, *chunk_object; /* "object" of an answer, and of a piece of a stream */
} openai_object_names;

/* An answer at once. The choices are transferred. */
json_t *openai_reply(const serve_job_view *view, const openai_object_names *names, json_t *choices);
/* A piece of a stream with one choice, which is transferred. */
void openai_write_choice(serve_job_view *view, const openai_object_names *names, json_t *choice);
/* The events END, FAILED and IDLE; others are nothing to it. */
void openai_write_end(serve_job_view *view, const openai_object_names *names, const serve_event *e);

#endif
