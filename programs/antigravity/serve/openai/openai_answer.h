/* SPDX-License-Identifier: Apache-2.0 */
/* Reply objects that chat completions, completions and similar protocols share. */
#ifndef ANTIGRAVITY_SERVE_OPENAI_OPENAI_ANSWER_H
#define ANTIGRAVITY_SERVE_OPENAI_OPENAI_ANSWER_H

#include "../protocol/protocol.h"

/* Returns {"object": "response.input_tokens", "input_tokens"}, the reply to a request that is only
 * counted. */
json_t *openai_count(serve_job_view *view);
/* Returns the bytes of a token's text as a list of numbers. They need not be whole characters. */
json_t *openai_token_bytes(const serve_token *t);
/* Returns a list of {"token", "logprob", "bytes", "top_logprobs"}. */
json_t *openai_token_list(const serve_token *tokens, size_t n);

/* ---- chat completions and completions ---- */

/* Names in the objects of one endpoint. */
typedef struct openai_object_names {
    const char *id;                    /* prefix of ids: "chatcmpl-" */
    const char *object, *chunk_object; /* "object" of a full reply, and of a chunk of a stream */
} openai_object_names;

/* Returns a full reply. The choices are transferred. */
json_t *openai_reply(const serve_job_view *view, const openai_object_names *names, json_t *choices);
/* Writes a chunk of a stream with one choice, which is transferred. */
void openai_write_choice(serve_job_view *view, const openai_object_names *names, json_t *choice);
/* Writes the events END, FAILED and IDLE. Ignores others. */
void openai_write_end(serve_job_view *view, const openai_object_names *names, const serve_event *e);

#endif
