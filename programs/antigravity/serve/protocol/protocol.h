/* SPDX-License-Identifier: Apache-2.0 */
/* What a protocol is to the server. Its parser turns the body of a request into a serve_request,
 * the same for all protocols; its writer turns what the model answers into the bytes that its
 * clients expect. A protocol is a file with these functions, a list of routes (route.h), and the
 * line in routes.c that names the list. */
#ifndef ANTIGRAVITY_SERVE_PROTOCOL_PROTOCOL_H
#define ANTIGRAVITY_SERVE_PROTOCOL_PROTOCOL_H

#include <antigravity/chat.h>
#include <antigravity/constrain.h>
#include <antigravity/session.h>
#include <jansson.h>

/* ---- what went wrong ---- */

typedef struct serve_error {
    int status;                 /* HTTP's: 400, 401, 403, 404, 413, 429, 500, 501, 503, 504 */
    const char *type;           /* of OpenAI's shape, "invalid_request_error": as the status says */
    const char *code;           /* NULL, or what programs branch on: "model_not_found" */
    char param[64];             /* the field that is wrong; "": none */
    unsigned retry_after;       /* seconds; 0: no such header */
    size_t n_prompt, n_context; /* tokens, of a prompt that is too long; else 0 */
    char text[512];             /* one line of UTF-8 */
} serve_error;

/* Fills *e and returns false, so that a parser ends with `return serve_reject(e, 400, ...)`. param
 * may be NULL. */
bool serve_reject(serve_error *e, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for an error of the library: AG_NOT_FOUND 404, AG_LIMIT and what a client wrote 400,
 * AG_NOMEM 503, ... */
bool serve_reject_status(serve_error *e, const ag_error *err);
bool serve_no_memory(serve_error *e); /* 503 */
/* OpenAI's shape: {"error": {"message", "type", "param", "code"}}. */
json_t *openai_error(const serve_error *e);

/* ---- a request ---- */

typedef enum serve_kind {
    SERVE_CHAT,  /* messages, in the model's template */
    SERVE_TEXT,  /* prompts that the model goes on with */
    SERVE_EMBED, /* prompts, of each a vector */
} serve_kind;

typedef enum serve_tool_choice {
    SERVE_TOOLS_AUTO,
    SERVE_TOOLS_NONE,
    SERVE_TOOLS_REQUIRED, /* a call, of whichever tool */
    SERVE_TOOLS_NAMED,    /* a call of tool_name */
} serve_tool_choice;

/* What a request says of sampling. NAN, or -1 of the whole numbers: nothing, so that the model's
 * own defaults hold. */
typedef struct serve_sampling {
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, repetition_window;
    bool has_seed;
    int64_t seed;
    json_t *logit_bias;  /* NULL, or as the client gave it */
    ag_logit_bias *bias; /* [n_bias] owned; made of it */
    size_t n_bias;
} serve_sampling;

/* Everything is owned by the request and freed by serve_request_free(): strings by malloc(), JSON
 * by reference. serve_request_init() says what each is where a client says nothing. */
typedef struct serve_request {
    serve_kind kind;
    char *model;     /* NULL: the client named none */
    bool count_only; /* the answer is how many tokens the prompt has */

    /* CHAT */
    json_t *messages;  /* an array as ag_chat_set_messages() takes it */
    json_t *tools;     /* NULL, or an array as ag_chat_set_tools() takes it */
    json_t *variables; /* NULL, or an object: variables of the template ("enable_thinking") */
    serve_tool_choice tool_choice;
    char *tool_name;
    bool one_call;      /* parallel calls are not wanted: the answer ends with the first */
    bool continue_last; /* the last message is the assistant's, and is gone on with */
    bool no_generation; /* nothing begins the assistant's turn */

    /* TEXT and EMBED */
    json_t *prompts;    /* an array; of each a string, or an array of ids */
    bool echo;          /* an answer begins with its prompt */
    bool parse_special; /* "<|im_end|>" in a prompt is the token */
    char *suffix;       /* NULL, or what stands behind the gap that the answer fills */
    json_t *files;      /* with suffix: NULL, or an array of {"filename", "text"} to know of */

    /* What the answer must be. */
    bool constrained;
    ag_constraint_kind constraint;
    char *constraint_text; /* schema, regular expression or grammar; of UTF-8 */
    json_t *choices;       /* an array of strings */

    serve_sampling sampling;
    json_t *stop;          /* NULL, or an array of strings */
    json_t *writer_fields; /* NULL, or what the protocol's writer wants of the body */
    uint32_t n;            /* 1 answer to each prompt */
    int64_t max_tokens;    /* -1: as many as fit */
    bool ignore_eos;
    bool logprobs;
    uint32_t n_top; /* of every token the so many likeliest, with logprobs */

    bool stream;
    bool include_usage;  /* in a stream, where the protocol lets clients choose */
    bool hide_reasoning; /* the answer's reasoning is not sent */
    double timeout_s;    /* 0: the server's */

    /* Ours: how this conversation is kept. NULL and 0: as the server was started. */
    char *kv_type;     /* "q8_0", or "q8_0,q4_0" of keys and values */
    char *kv_policy;   /* "keydiff" */
    char *kv_budget;   /* "512", "25%", "64MiB" */
    char *head_budget; /* "adaptive" */
    bool no_prefix;    /* neither reads from parked conversations nor parks this one */
} serve_request;

void serve_request_init(serve_request *r);
void serve_request_free(serve_request *r);

/* ---- an answer ---- */

typedef enum serve_finish {
    SERVE_FINISH_NONE,        /* it has not ended */
    SERVE_FINISH_STOP,        /* the model ended it */
    SERVE_FINISH_STOP_STRING, /* serve_answer.stop */
    SERVE_FINISH_LENGTH,      /* max_tokens, or the context is full */
    SERVE_FINISH_CALLS,       /* it ended with calls of tools */
    SERVE_FINISH_CANCELLED,   /* the server stops, or its time is over */
} serve_finish;

typedef struct serve_token {
    int32_t id;
    float logprob;
    char *text; /* [len] bytes, owned; not of UTF-8 where a character has several tokens */
    size_t len;
    struct serve_token *top; /* [n_top] owned */
    size_t n_top;
} serve_token;

typedef struct serve_tool_call {
    char *id, *name;
    ag_text arguments; /* JSON; cut short where the answer was */
} serve_tool_call;

/* What an answer has been so far. Its texts are UTF-8. */
typedef struct serve_answer {
    ag_text content, reasoning;
    serve_tool_call *calls;
    size_t n_calls;
    serve_token *tokens; /* [n_tokens] with request.logprobs */
    size_t n_tokens;
    serve_finish finish;
    const char *stop;                /* the stop string that ended it, or NULL */
    size_t n_generated, n_reasoning; /* tokens */
} serve_answer;

typedef enum serve_event_kind {
    SERVE_BEGIN,     /* the first of all: n_prompt and n_cached of the exchange are known */
    SERVE_CONTENT,   /* text; tokens */
    SERVE_REASONING, /* text */
    SERVE_CALL,      /* call, id, name */
    SERVE_ARGUMENTS, /* call; text: more of its arguments */
    SERVE_ANSWERED,  /* one answer has ended: answers[answer].finish; tokens, if some are left */
    SERVE_END,       /* all have; usage is known */
    SERVE_FAILED,    /* in the place of END: error; the stream ends behind it */
    SERVE_IDLE,      /* nothing for some seconds, while a prompt is read: something may be sent
                      * that keeps the connection alive */
} serve_event_kind;

typedef struct serve_event {
    serve_event_kind kind;
    size_t answer;    /* which, from 0: prompt * n + i */
    const char *text; /* [len] whole characters, also ended by a NUL */
    size_t len;
    size_t call;
    const char *id, *name;
    const serve_token *tokens; /* [n_tokens] what was sampled since the last event that had some */
    size_t n_tokens;
    const serve_error *error;
} serve_event;

/* A request on its way, as its protocol sees it. */
typedef struct serve_job_view {
    serve_request *request;
    const char *model;     /* the name by which the client asked */
    char id[33];           /* 32 hexadecimal digits, random: "chatcmpl-" and this */
    int64_t created;       /* seconds since 1970 */
    serve_answer *answers; /* [n_answers] prompts times n */
    size_t n_answers;
    size_t n_prompt, n_cached, n_generated, n_reasoning; /* tokens, of all prompts and answers */
    float **embeddings; /* EMBED: [number of prompts][n_embedding] */
    size_t n_embedding;
    double queue_s, prefill_s, first_token_s, decode_s, total_s;
    void *state; /* the protocol's own: state_size zero bytes at first */
} serve_job_view;

/* ---- a protocol ---- */

typedef struct serve_http_request serve_http_request; /* route.h */
typedef struct serve_job serve_job;                   /* job.h */

typedef struct serve_protocol {
    const char *name; /* in the access log: "openai-chat" */
    /* Called on a worker's thread, which may take its time. False: *e says why. Fields that it does
     * not know are ignored. */
    bool (*parse)(const serve_http_request *http, const json_t *body, serve_request *r,
                  serve_error *e);
    /* The rest is called on the thread of the connections, and must be quick. */
    json_t *(*error)(const serve_error *e); /* the body of a response that is none */
    json_t *(*reply)(serve_job_view *view); /* without stream: the body. NULL: out of memory */
    const char *stream_type;                /* "text/event-stream"; NULL: it has no streams */
    void (*event)(serve_job_view *view, const serve_event *e); /* in a stream */
    bool stream_repeats_tokens; /* whose last events tell them all once more */
    size_t answer_bytes;        /* memory of an answer in whole(), without its text; 0: 4 KiB */
    size_t state_size;
    void (*close)(void *state); /* optional; NULL: the state owns nothing */
} serve_protocol;

/* Into the stream, from event() alone. The JSON is transferred; NULL ends the stream: no memory. */
void serve_write(serve_job_view *view, const char *bytes, size_t n);
void serve_write_line(serve_job_view *view, json_t *value); /* NDJSON: the value and a line break */
/* Server-sent events: "event: NAME", if there is one, "data: VALUE", an empty line. */
void serve_write_sse(serve_job_view *view, const char *name, json_t *value);

/* "stop", "length", "tool_calls": as OpenAI's interface says it. */
const char *serve_finish_reason(serve_finish f);

#endif
