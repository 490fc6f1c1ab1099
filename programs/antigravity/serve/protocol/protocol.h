/* SPDX-License-Identifier: Apache-2.0 */
/* Interface between the server and a protocol. A parser turns the body of a request into a
 * serve_request, which is the same for all protocols. A writer turns the answers into the bytes
 * that the protocol's clients expect.
 *
 * To add a protocol, write a file with these functions and a list of routes (route.h), and name the
 * list in routes.c. */
#ifndef ANTIGRAVITY_SERVE_PROTOCOL_PROTOCOL_H
#define ANTIGRAVITY_SERVE_PROTOCOL_PROTOCOL_H

#include <antigravity/chat.h>
#include <antigravity/constrain.h>
#include <antigravity/session.h>
#include <jansson.h>

typedef struct serve_http_request serve_http_request; /* route.h */
typedef struct serve_job serve_job;                   /* job.h */

/* ---- errors ---- */

typedef struct serve_error {
    int status;                 /* HTTP status, 400 or above */
    const char *type;           /* OpenAI's "type"; NULL: derived from the status */
    const char *code;           /* NULL, or OpenAI's "code": "model_not_found" */
    char param[64];             /* the invalid field; "": none */
    size_t n_prompt, n_context; /* tokens, if the prompt is too long; else 0 */
    unsigned retry_after_s;     /* seconds that a 429 or 503 names; 0: 1 */
    char text[512];             /* one line of UTF-8 */
} serve_error;

/* Fills *e and returns false, so that a parser can end with `return reject(e, 400, ...)`.
 * param may be NULL. */
bool reject_request(serve_error *e, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Does the same for an invalid field: 400 with the text "FIELD: ...". */
bool reject_field(serve_error *e, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Does the same for an error of the library. AG_NOT_FOUND becomes 404, AG_LIMIT and invalid input
 * 400, AG_NOMEM 503. */
bool reject_status(serve_error *e, const ag_error *err);
bool reject_no_memory(serve_error *e); /* 503, "out of memory" */
/* Returns {"error": {"message", "type", "param", "code"}}, the default body of an error. */
json_t *openai_error(const serve_error *e);

/* ---- a request ---- */

typedef enum serve_kind {
    SERVE_CHAT,  /* messages, rendered by the model's template */
    SERVE_TEXT,  /* prompts that the model continues */
    SERVE_EMBED, /* prompts, each of which becomes a vector */
} serve_kind;

typedef enum serve_tool_choice {
    SERVE_TOOLS_AUTO,
    SERVE_TOOLS_NONE,
    SERVE_TOOLS_REQUIRED, /* a call of any tool */
    SERVE_TOOLS_NAMED,    /* a call of tool_name */
} serve_tool_choice;

/* Sampling fields of a request. NAN, or -1 for integers: not given; the model's defaults apply. */
typedef struct serve_sampling {
    double temperature, dynamic_range, dynamic_exponent;
    double top_n_sigma, typical_p, top_p, min_p, xtc_probability, xtc_threshold;
    double dry_multiplier, dry_base;
    int64_t dry_allowed_length, dry_window;
    json_t *dry_breakers; /* NULL: the usual ones; else a list of strings, which may be empty */
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, repetition_window;
    bool has_seed;
    int64_t seed;
    json_t *logit_bias;  /* NULL, or as in the body */
    ag_logit_bias *bias; /* [n_bias] owned; converted from logit_bias */
    size_t n_bias;
} serve_sampling;

/* A request, independent of its protocol. It owns all members, and serve_request_free() frees them:
 * strings come from account_malloc(), JSON values are references. serve_request_init() sets the
 * defaults. */
typedef struct serve_request {
    const serve_http_request *http; /* borrowed; for http_model() and similar functions */
    serve_kind kind;
    char *model;     /* NULL: not given */
    bool count_only; /* the reply is the number of prompt tokens */

    /* CHAT */
    json_t *messages;  /* array for ag_chat_set_messages() */
    json_t *tools;     /* NULL, or an array for ag_chat_set_tools() */
    json_t *variables; /* NULL, or an object of template variables ("enable_thinking") */
    serve_tool_choice tool_choice;
    char *tool_name;
    bool one_call;      /* no parallel calls: the answer ends after the first */
    bool continue_last; /* the answer continues the last message, the assistant's */
    bool no_generation; /* the prompt does not open the assistant's turn */

    /* TEXT and EMBED */
    json_t *prompts;    /* array of strings and arrays of ids */
    bool echo;          /* the answer begins with its prompt, with logprobs also with its tokens */
    bool parse_special; /* "<|im_end|>" in a prompt is a special token */
    char *suffix;       /* NULL, or the text after the gap to fill */
    json_t *files;      /* with suffix: NULL, or [{"filename", "text"}] as context */

    /* Constraint on the answer. */
    bool constrained;
    ag_constraint_kind constraint;
    char *constraint_text; /* schema, regular expression or grammar; UTF-8 */
    json_t *choices;       /* an array of strings */

    serve_sampling sampling;
    json_t *stop;          /* NULL, or an array of strings */
    char *stored_text;     /* NULL, or a text that the writer stores with the answer */
    json_t *writer_fields; /* NULL, or fields of the body that the writer needs */
    uint32_t n;            /* answers to each prompt */
    int64_t max_tokens;    /* -1: up to the context */
    bool ignore_eos;
    bool logprobs;
    uint32_t n_top; /* likeliest tokens reported for each token, with logprobs */

    bool stream;
    bool include_usage;  /* in a stream, if the protocol lets clients choose */
    bool hide_reasoning; /* do not send the answer's reasoning */
    double timeout_s;    /* 0: the server's limit */

    /* Residence of the model, as ollama's clients choose it. */
    bool load_only;      /* generate nothing: load the model or, with keep_alive_s 0, free it */
    double keep_alive_s; /* seconds after this request, INFINITY: no limit; NAN: not given */
    int64_t max_context; /* tokens of prompt and answer; 0: the server's limit */

    /* Cache settings, an extension of this server. NULL: the server's. */
    char *kv_type;     /* "q8_0", or "q8_0,q4_0" for keys and values */
    char *kv_policy;   /* "keydiff" */
    char *kv_budget;   /* "512", "25%", "64MiB" */
    char *head_budget; /* "adaptive" */
    bool no_prefix;    /* do not reuse cached sessions, and do not cache this one */
} serve_request;

void serve_request_init(serve_request *r);
void serve_request_free(serve_request *r);
/* Puts a system prompt before the messages of a chat, unless it is NULL or they begin with one. The
 * body of the request stays unchanged. Returns false if memory runs out. */
bool serve_request_add_system(serve_request *r, const char *system);

/* ---- an answer ---- */

typedef enum serve_finish {
    SERVE_FINISH_NONE,        /* it has not ended */
    SERVE_FINISH_STOP,        /* the model ended it */
    SERVE_FINISH_STOP_STRING, /* a stop string of the client ended it: serve_answer.stop */
    SERVE_FINISH_LENGTH,      /* max_tokens, or the context is full */
    SERVE_FINISH_CALLS,       /* it ended with tool calls */
    SERVE_FINISH_CANCELLED,   /* the server stops, or the deadline has passed */
} serve_finish;

typedef struct serve_token {
    int32_t id;
    float logprob; /* NAN: the first token of a prompt */
    char *text;    /* [len] bytes, owned; may be a part of a character */
    size_t len;
    size_t offset; /* TEXT: characters of the answer's text before it, the echo included */
    struct serve_token *top; /* [n_top] owned */
    size_t n_top;
} serve_token;

typedef struct serve_tool_call {
    char *id, *name;
    ag_text arguments; /* JSON; truncated if the answer was */
} serve_tool_call;

/* A generated answer, up to the current event. Its texts are UTF-8. */
typedef struct serve_answer {
    ag_text content, reasoning;
    serve_tool_call *calls;
    size_t n_calls;
    serve_token *tokens; /* [n_tokens] with request->logprobs; with echo first the prompt's */
    size_t n_tokens;
    serve_finish finish;
    const char *stop;                /* NULL, or the stop string that ended it */
    size_t n_generated, n_reasoning; /* tokens */
} serve_answer;

typedef enum serve_event_kind {
    SERVE_BEGIN,     /* first event: n_prompt and n_cached of the view are set */
    SERVE_CONTENT,   /* text, tokens */
    SERVE_REASONING, /* text */
    SERVE_CALL,      /* call, id, name */
    SERVE_ARGUMENTS, /* call, text: a piece of its arguments */
    SERVE_ANSWERED,  /* one answer has ended: answers[answer].finish; remaining tokens */
    SERVE_END,       /* all answers have ended; the statistics of the view are set */
    SERVE_FAILED,    /* instead of END: error. The stream ends after it */
    SERVE_IDLE, /* nothing was sent for some seconds: the protocol may send a comment to keep the
                   connection alive */
} serve_event_kind;

typedef struct serve_event {
    serve_event_kind kind;
    size_t answer;    /* index: prompt * n + i */
    const char *text; /* [len] whole characters, followed by a NUL */
    size_t len;
    size_t call;
    const char *id, *name;
    const serve_token *tokens; /* [n_tokens] sampled since the last event with tokens */
    size_t n_tokens;
    const serve_error *error;
} serve_event;

/* A protocol's view of a job. */
typedef struct serve_job_view {
    serve_request *request;
    const char *model;                 /* name in the request */
    char id[33];                       /* 32 random hexadecimal digits */
    int64_t created;                   /* seconds since 1970 */
    const ag_sampler_params *sampling; /* complete; answer i to a prompt has seed + i */
    json_t *echoes;                    /* TEXT with echo: array of the prompts as text; else NULL */
    serve_answer *answers;             /* [n_answers]: number of prompts times n */
    size_t n_answers;
    size_t n_prompt, n_cached, n_generated, n_reasoning; /* tokens of all prompts and answers */
    float **embeddings; /* EMBED: [number of prompts][n_embedding] */
    size_t n_embedding;
    double queue_s, prefill_s, first_token_s, decode_s, total_s;
    void *state; /* the protocol's; state_size bytes, initially zero */
} serve_job_view;

/* ---- a protocol ---- */

typedef struct serve_protocol {
    const char *name; /* for the access log: "openai-chat" */
    /* Called on a worker's thread, and may take long. Fails with *e. Ignores unknown fields. */
    bool (*parse)(const json_t *body, serve_request *r, serve_error *e);
    /* The other functions are called on the thread of the event loop and must not block. */
    json_t *(*error)(const serve_error *e); /* body of an error reply */
    json_t *(*reply)(serve_job_view *view); /* body without stream; NULL: no memory */
    const char *stream_type;                /* "text/event-stream"; NULL: no streams */
    void (*event)(serve_job_view *view, const serve_event *e); /* writes one event of a stream */
    bool stream_repeats_tokens; /* the last events repeat all tokens */
    size_t answer_bytes;        /* memory of one answer in reply(), without its text; 0: 4 KiB */
    size_t state_size;
    void (*close)(void *state); /* frees the contents of the state; may be NULL */
} serve_protocol;

/* Write to the stream; only event() may call them. The value is transferred; NULL (no memory)
 * closes the connection. */
void serve_write(serve_job_view *view, const char *bytes, size_t n);
void serve_write_line(serve_job_view *view, json_t *value); /* NDJSON: the value and a newline */
/* Writes a server-sent event: "event: NAME" unless name is NULL, "data: VALUE", an empty line. */
void serve_write_sse(serve_job_view *view, const char *name, json_t *value);

/* Returns OpenAI's finish_reason: "stop", "length" or "tool_calls". */
const char *serve_finish_reason(serve_finish f);

#endif
