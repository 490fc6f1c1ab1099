/* SPDX-License-Identifier: Apache-2.0 */
/* Chats: turns messages into token ids, and an answer's text into content, reasoning and tool
 * calls. Works on text only; session.h runs the model. examples/chat.c uses the whole interface. */
#ifndef ANTIGRAVITY_CHAT_H
#define ANTIGRAVITY_CHAT_H

#include <antigravity/constrain.h>
#include <antigravity/sampler.h>
#include <antigravity/session.h>
#include <antigravity/status.h>
#include <antigravity/tokenizer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the format of a model's chats ---- */

/* A chat template and its properties: which messages it accepts, how a turn ends, how reasoning and
 * tool calls are written. The properties are found by rendering known conversations. Immutable: any
 * number of threads may use a format at the same time. */
typedef struct ag_chat_format ag_chat_format;

/* Loads the template of the model at `path` (as ag_tokenizer_load() takes it). A `jinja` that is
 * not NULL replaces the model's template. The tokenizer is borrowed. Fails with AG_NOT_FOUND if the
 * model has no template; AG_FORMAT and AG_UNSUPPORTED name the line and the construct. */
AG_API ag_status ag_chat_format_load(const char *path, const ag_tokenizer *t, const char *jinja,
                                     ag_chat_format **out, ag_error *err);
/* Creates a format from a template without a model. bos and eos are the values of bos_token and
 * eos_token in the template; NULL leaves them undefined. With t == NULL the format renders text but
 * no ids. */
AG_API ag_status ag_chat_format_create(const char *jinja, size_t len, const char *bos,
                                       const char *eos, const ag_tokenizer *t, ag_chat_format **out,
                                       ag_error *err);
AG_API void ag_chat_format_destroy(ag_chat_format *f);

/* Features of a template, found by probes. ag_chat_render() substitutes for missing features. */
enum {
    AG_CHAT_SYSTEM = 1 << 0,           /* accepts the role system */
    AG_CHAT_DEVELOPER = 1 << 1,        /* accepts the role developer */
    AG_CHAT_TOOLS = 1 << 2,            /* describes the tools to the model */
    AG_CHAT_CALLS = 1 << 3,            /* writes tool calls */
    AG_CHAT_PARALLEL_CALLS = 1 << 4,   /* writes several tool calls in one turn */
    AG_CHAT_RESULTS = 1 << 5,          /* accepts the role tool */
    AG_CHAT_TEXT = 1 << 6,             /* accepts a content that is a string */
    AG_CHAT_PARTS = 1 << 7,            /* accepts a content that is a list of typed parts */
    AG_CHAT_NULL_CONTENT = 1 << 8,     /* accepts tool calls without content */
    AG_CHAT_ARGUMENT_OBJECTS = 1 << 9, /* accepts arguments of calls as objects */
    AG_CHAT_ARGUMENT_TEXT = 1 << 10,   /* accepts arguments of calls as JSON text */
    AG_CHAT_REASONING = 1 << 11,       /* writes the reasoning of the newest turn */
    AG_CHAT_THINKING_SWITCH = 1 << 12, /* enable_thinking changes the prompt */
    AG_CHAT_OPENS_REASONING = 1 << 13, /* the prompt opens a reasoning section */
    AG_CHAT_DOCUMENTS = 1 << 14,       /* accepts documents */
};
AG_API uint32_t ag_chat_format_features(const ag_chat_format *f);
/* Returns the name of one of these bits ("system", ...), NULL for other values. */
AG_API const char *ag_chat_feature_name(uint32_t feature);

/* Returns why the template could not be probed ("it needs more than 2000000 steps"), NULL if it was
 * probed. An unprobed template gets user and assistant messages with text only. Borrowed from f. */
AG_API const char *ag_chat_format_not_probed(const ag_chat_format *f);

/* Returns whether the format can write several tool calls, one after the other, in one answer. */
AG_API bool ag_chat_format_repeats_calls(const ag_chat_format *f);

/* Return the stop strings and stop ids of an answer, besides the model's end-of-text ids. The
 * strings are for ag_generate_params.stop with keep_special, which writes special tokens as text.
 * The ids are the stop strings that are one token. Borrowed from f. */
AG_API const char *const *ag_chat_format_stops(const ag_chat_format *f, size_t *n);
AG_API const int32_t *ag_chat_format_stop_ids(const ag_chat_format *f, size_t *n);

/* Reads the model's recommended sampling parameters from generation_config.json (GGUF:
 * general.sampling...) and overwrites those members of *params; other members keep their values.
 * *names, which may be NULL, is freed and receives a list: "temperature 0.6, top_k 20". */
AG_API ag_status ag_chat_sampling_load(const char *path, ag_sampler_params *params, ag_text *names,
                                       ag_error *err);

/* ---- conversations ---- */

/* A conversation: messages, tools, documents and template variables. Used by one thread at a time.
 */
typedef struct ag_chat ag_chat;

/* Creates an empty conversation. The format is borrowed. */
AG_API ag_status ag_chat_create(const ag_chat_format *f, ag_chat **out, ag_error *err);
AG_API void ag_chat_destroy(ag_chat *c);

/* Appends a message. A message is JSON as in OpenAI's chat interface: role, content (a string, a
 * list of parts, or null), tool_calls, tool_call_id, name, reasoning_content. Other keys are passed
 * to the template. Fails with AG_FORMAT or AG_INVALID and names message and reason; the
 * conversation is then unchanged. */
AG_API ag_status ag_chat_add_json(ag_chat *c, const char *message, size_t len, ag_error *err);
/* Replaces all messages by a JSON array of messages. Fails as ag_chat_add_json() does. */
AG_API ag_status ag_chat_set_messages(ag_chat *c, const char *messages, size_t len, ag_error *err);
/* Appends a text message of the role "user", "system", ... */
AG_API ag_status ag_chat_add(ag_chat *c, const char *role, const char *content, ag_error *err);
AG_API size_t ag_chat_n_messages(const ag_chat *c);
/* Removes all but the first n messages. */
AG_API void ag_chat_truncate(ag_chat *c, size_t n);
/* Append all messages as a JSON array, or message i as a JSON object, to *json. */
AG_API ag_status ag_chat_get_messages(const ag_chat *c, ag_text *json, ag_error *err);
AG_API ag_status ag_chat_get_message(const ag_chat *c, size_t i, ag_text *json, ag_error *err);

/* Sets the tools, a JSON array of {"type": "function", "function": {"name", "description",
 * "parameters"}} or of the inner objects alone. An empty array or NULL removes all tools. */
AG_API ag_status ag_chat_set_tools(ag_chat *c, const char *tools, size_t len, ag_error *err);
/* Sets a template variable to a JSON value, such as "enable_thinking" to "true" or "documents" to
 * "[...]". NULL removes the variable. */
AG_API ag_status ag_chat_set_variable(ag_chat *c, const char *name, const char *json, size_t len,
                                      ag_error *err);
/* Sets the time that strftime_now() of the template formats, in seconds since 1970, UTC. Without
 * this call it formats the system's local time. */
AG_API void ag_chat_set_clock(ag_chat *c, int64_t seconds);

/* Limits the memory of the template in ag_chat_render(): values, rendered text and spans. The
 * messages are not counted. 0 restores the default of 256 MiB. */
AG_API void ag_chat_set_memory_limit(ag_chat *c, size_t bytes);

enum {
    AG_CHAT_NO_PROMPT = 1,    /* omit the header of the assistant's next turn */
    AG_CHAT_CONTINUE = 2,     /* continue the last message, which must be the assistant's */
    AG_CHAT_NO_REWRITING = 4, /* pass messages to the template unchanged, as transformers does */
    AG_CHAT_NO_CALLS = 8,     /* tool_choice "none": describe the tools, but parse no tool calls */
};
/* Renders the conversation and appends its ids to *ids and its text to *text, which may be NULL.
 * Text of messages, tools, documents and variables never becomes a special token or another
 * delimiter of this template. Answers of ag_chat_add_answer() keep their sampled ids. Fails with
 * AG_REFUSED and the template's own message, or with AG_LIMIT, the exceeded limit and the line. */
AG_API ag_status ag_chat_render(ag_chat *c, unsigned flags, ag_ids *ids, ag_text *text,
                                ag_error *err);
enum {
    AG_CHAT_SEVERAL_CALLS = 1, /* allow more calls, if ag_chat_format_repeats_calls() */
};
/* Forces a tool call (tool_choice "required" or a name). Call it after ag_chat_render(). Appends
 * the start of a call, as the template writes it, to *ids. Appends a grammar of the rest of the
 * answer to *grammar (AG_CONSTRAINT_GRAMMAR, constrain.h): a call of the tool `name`, or of any
 * tool if name is NULL, with arguments that match the tool's parameters. The next
 * ag_chat_parser_create() takes this into account. Fails with AG_NOT_FOUND if there is no such
 * tool, and with AG_UNSUPPORTED if the format or the parameters cannot be constrained;
 * ag_constraint_create() may also detect the latter. */
AG_API ag_status ag_chat_require_call(ag_chat *c, const char *name, unsigned flags, ag_ids *ids,
                                      ag_text *grammar, ag_error *err);
/* Creates a constraint for an answer that may call tools or not (tool_choice "auto"). Call it after
 * ag_chat_render(). The text is free until a call begins; the call is then of a tool that the
 * conversation has, with arguments that match the tool's parameters; after the call the text is
 * free again. Parameters that cannot be constrained allow any object. *out is NULL if there are no
 * tools or more than 256, if the format cannot be constrained, or if the grammar of all tools
 * exceeds a limit. limits: its text and kind are not used. */
AG_API ag_status ag_chat_constrain_calls(const ag_chat *c, const ag_constraint_vocab *v,
                                         const ag_constraint_params *limits, unsigned flags,
                                         ag_constraint **out, ag_error *err);
/* Creates a constraint for an answer whose content matches `content`, in formats with channels
 * (gpt-oss): the answer may reason first, and may call a tool instead, with arguments that match
 * the tool's parameters. Call it after ag_chat_render(). A grammar must have no trigger. *out is
 * NULL if the format has no channels or the list of choices is empty: then ag_constraint_create()
 * constrains the entire answer. Fails as ag_constraint_create() does. */
AG_API ag_status ag_chat_constrain_content(const ag_chat *c, const ag_constraint_vocab *v,
                                           const ag_constraint_params *content, ag_constraint **out,
                                           ag_error *err);
/* Returns the number of leading ids that a and b have in common. A session that has consumed a can
 * skip them when it reads b. */
AG_API size_t ag_chat_common_prefix(const ag_ids *a, const ag_ids *b);

/* ---- answers ---- */

typedef enum ag_chat_delta_kind {
    AG_CHAT_DELTA_CONTENT,   /* text */
    AG_CHAT_DELTA_REASONING, /* text */
    AG_CHAT_DELTA_CALL,      /* the start of a call: id and name */
    AG_CHAT_DELTA_ARGUMENTS, /* text of its arguments; the joined texts are a JSON object */
} ag_chat_delta_kind;

typedef struct ag_chat_delta {
    ag_chat_delta_kind kind;
    size_t call;          /* CALL and ARGUMENTS: index of the call in this answer, from 0 */
    const char *id;       /* CALL */
    const char *name;     /* CALL */
    const char *text;     /* complete characters, except where the pushed text is invalid UTF-8 */
    size_t len;           /* bytes of text */
    uint64_t reserved[2]; /* 0 */
} ag_chat_delta;

/* Parses one answer. Used by one thread at a time. */
typedef struct ag_chat_parser ag_chat_parser;

/* Creates a parser for the answer to the last ag_chat_render(). It parses tool calls if the
 * conversation has tools, and starts in the reasoning if the prompt opened one. c and its format
 * are borrowed. */
AG_API ag_status ag_chat_parser_create(ag_chat *c, ag_chat_parser **out, ag_error *err);
AG_API void ag_chat_parser_destroy(ag_chat_parser *p);
/* Parses more text of the answer, in pieces of any size. Special tokens must be written as text
 * (keep_special). */
AG_API ag_status ag_chat_parser_push(ag_chat_parser *p, const char *text, size_t len,
                                     ag_error *err);
/* Ends the answer and releases text that was held for disambiguation. An incomplete call stays
 * incomplete. */
AG_API ag_status ag_chat_parser_finish(ag_chat_parser *p, ag_error *err);
/* Writes the next delta of the pushed text; returns false if there is none yet. Its texts are valid
 * until the next call with p. */
AG_API bool ag_chat_parser_next(ag_chat_parser *p, ag_chat_delta *delta);
/* Returns the number of calls that have started. */
AG_API size_t ag_chat_parser_n_calls(const ag_chat_parser *p);
/* Appends the answer so far as a message, {"role": "assistant", "content": ..., ...}. */
AG_API ag_status ag_chat_parser_message(const ag_chat_parser *p, ag_text *json, ag_error *err);

/* Appends the parsed answer as the conversation's next message. ids[0..n), if not NULL, are the
 * sampled ids without the stop token. Later renderings use these ids for this message, and for
 * messages with the same calls or the same text. */
AG_API ag_status ag_chat_add_answer(ag_chat *c, const ag_chat_parser *p, const int32_t *ids,
                                    size_t n, ag_error *err);

/* Appends a record of the parsed answer to *json, for clients that resend the conversation and get
 * a new ag_chat in each turn. ids[0..n) are all sampled ids, without the prompt that
 * ag_chat_require_call() added. Fails with AG_UNSUPPORTED if the answer contains special tokens,
 * which a client can only resend as text. */
AG_API ag_status ag_chat_keep_answer(const ag_chat *c, const ag_chat_parser *p, const int32_t *ids,
                                     size_t n, ag_text *json, ag_error *err);
/* Restores a record of ag_chat_keep_answer() of the same model. A message with equal content, calls
 * and reasoning (if the message has any) is then rendered with the record's ids. Equal records are
 * used in order: the first record for the first matching message. Fails with AG_FORMAT if json is
 * not such a record, comes from another tokenizer or template, or its ids do not decode to its
 * message. */
AG_API ag_status ag_chat_restore_answer(ag_chat *c, const char *json, size_t len, ag_error *err);

/* ---- requests that repeat a text ---- */

/* Token lists that announce a replay to the model: the members of the same names in
 * ag_compress_params (session.h). Owned. */
typedef struct ag_replay_request {
    ag_ids instruction, instruction_next, suffix;
} ag_replay_request;
/* Fills *out. f is NULL for a model without a template; the suffix is then a newline. */
AG_API ag_status ag_replay_request_make(const ag_tokenizer *t, const ag_chat_format *f,
                                        ag_replay_request *out, ag_error *err);
AG_API void ag_replay_request_free(ag_replay_request *r);
/* Returns ag_compress_defaults() with these lists, which are borrowed. The caller must still set
 * keep_ratio or keep_tokens. */
AG_API ag_compress_params ag_replay_request_params(const ag_replay_request *r);

#ifdef __cplusplus
}
#endif
#endif
