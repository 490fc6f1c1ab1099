/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: from messages to token ids, and from an answer's text back to what it says. Reads
 * and writes text; the model's steps are session.h's. examples/chat.c shows all of it at work. */
#ifndef ANTIGRAVITY_CHAT_H
#define ANTIGRAVITY_CHAT_H

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

/* ---- how a model is talked to ---- */

/* A chat template, and what rendering known conversations with it has shown: which messages it
 * takes, how a turn ends, how reasoning and calls of tools are written. Immutable: any number of
 * threads may use one at the same time. */
typedef struct ag_chat_format ag_chat_format;

/* The template of the model at `path` (as ag_tokenizer_load() takes it), or, where it is not NULL,
 * `jinja` in its place. The tokenizer is borrowed. AG_NOT_FOUND if the model has no template;
 * AG_FORMAT and AG_UNSUPPORTED name line and construct. */
AG_API ag_status ag_chat_format_load(const char *path, const ag_tokenizer *t, const char *jinja,
                                     ag_chat_format **out, ag_error *err);
/* The same without a model: bos and eos are the texts that the template calls bos_token and
 * eos_token (NULL: it knows none). With t == NULL, texts can be rendered, ids cannot. */
AG_API ag_status ag_chat_format_create(const char *jinja, size_t len, const char *bos,
                                       const char *eos, const ag_tokenizer *t, ag_chat_format **out,
                                       ag_error *err);
AG_API void ag_chat_format_destroy(ag_chat_format *f);

/* What a template was found to do by itself. What it does not, ag_chat_render() makes up for. */
enum {
    AG_CHAT_SYSTEM = 1 << 0,           /* takes the role system */
    AG_CHAT_DEVELOPER = 1 << 1,        /* takes the role developer */
    AG_CHAT_TOOLS = 1 << 2,            /* tells the model of the tools */
    AG_CHAT_CALLS = 1 << 3,            /* writes calls of tools */
    AG_CHAT_PARALLEL_CALLS = 1 << 4,   /* several in one turn */
    AG_CHAT_RESULTS = 1 << 5,          /* takes the role tool */
    AG_CHAT_TEXT = 1 << 6,             /* takes contents that are strings */
    AG_CHAT_PARTS = 1 << 7,            /* takes contents that are lists of typed parts */
    AG_CHAT_NULL_CONTENT = 1 << 8,     /* takes calls without a content */
    AG_CHAT_ARGUMENT_OBJECTS = 1 << 9, /* takes arguments of calls as objects */
    AG_CHAT_ARGUMENT_TEXT = 1 << 10,   /* takes them as the text of an object */
    AG_CHAT_REASONING = 1 << 11,       /* writes the reasoning of the newest turn */
    AG_CHAT_THINKING_SWITCH = 1 << 12, /* enable_thinking makes a difference */
    AG_CHAT_OPENS_REASONING = 1 << 13, /* an answer begins inside the reasoning */
    AG_CHAT_DOCUMENTS = 1 << 14,       /* takes documents */
};
AG_API uint32_t ag_chat_format_features(const ag_chat_format *f);
/* "system", ... for one of these bits, NULL for others. */
AG_API const char *ag_chat_feature_name(uint32_t feature);

/* Why the template was not probed, "it needs more than 2000000 steps"; NULL if it was. The template
 * is then used as one that knows users, assistants and text alone. Borrowed from f. */
AG_API const char *ag_chat_format_not_probed(const ag_chat_format *f);

/* Whether this model writes several calls in one answer, one behind the other. */
AG_API bool ag_chat_format_repeats_calls(const ag_chat_format *f);

/* What ends an answer, besides the model's own end-of-text ids: texts for ag_generate_params.stop
 * (with keep_special, which spells special tokens out), and those of them that are one token.
 * Borrowed from f. */
AG_API const char *const *ag_chat_format_stops(const ag_chat_format *f, size_t *n);
AG_API const int32_t *ag_chat_format_stop_ids(const ag_chat_format *f, size_t *n);

/* The sampling parameters that the model at `path` asks for in its generation_config.json (GGUF:
 * general.sampling...) take the place of those in *params; the rest stays. *names lists what was
 * found, "temperature 0.6, top_k 20" (may be NULL); it is freed first. */
AG_API ag_status ag_chat_sampling_load(const char *path, ag_sampler_params *params, ag_text *names,
                                       ag_error *err);

/* ---- conversations ---- */

/* Messages, tools, documents and variables of a template. One thread at a time. */
typedef struct ag_chat ag_chat;

/* The format is borrowed. */
AG_API ag_status ag_chat_create(const ag_chat_format *f, ag_chat **out, ag_error *err);
AG_API void ag_chat_destroy(ag_chat *c);

/* Messages are JSON as clients of OpenAI's interface send it: role, content (a string, a list of
 * parts, null), tool_calls, tool_call_id, name, reasoning_content; other keys are handed to the
 * template. AG_FORMAT or AG_INVALID says which message and why; nothing has changed then. */
AG_API ag_status ag_chat_add_json(ag_chat *c, const char *message, size_t len, ag_error *err);
/* An array of messages takes the place of all messages. */
AG_API ag_status ag_chat_set_messages(ag_chat *c, const char *messages, size_t len, ag_error *err);
/* A message of text: role "user", "system", ... */
AG_API ag_status ag_chat_add(ag_chat *c, const char *role, const char *content, ag_error *err);
AG_API size_t ag_chat_n_messages(const ag_chat *c);
/* Forgets all but the first n messages. */
AG_API void ag_chat_truncate(ag_chat *c, size_t n);
/* Appends all messages, an array; or message i, an object. */
AG_API ag_status ag_chat_get_messages(const ag_chat *c, ag_text *json, ag_error *err);
AG_API ag_status ag_chat_get_message(const ag_chat *c, size_t i, ag_text *json, ag_error *err);

/* An array of tools, {"type": "function", "function": {"name", "description", "parameters"}} or
 * what stands in "function" alone. An empty array, or NULL: there are none. */
AG_API ag_status ag_chat_set_tools(ag_chat *c, const char *tools, size_t len, ag_error *err);
/* A variable of the template, as JSON: "enable_thinking", "true"; "documents", "[...]". NULL takes
 * it away. */
AG_API ag_status ag_chat_set_variable(ag_chat *c, const char *name, const char *json, size_t len,
                                      ag_error *err);
/* What strftime_now() of the template says: seconds since 1970, UTC. Not set: the system's local
 * time. */
AG_API void ag_chat_set_clock(ag_chat *c, int64_t seconds);

/* Limits the memory that the template may take in ag_chat_render(): its values, the rendered text
 * and its spans. The messages themselves are not counted. 0: 256 MiB, the default. */
AG_API void ag_chat_set_memory_limit(ag_chat *c, size_t bytes);

enum {
    AG_CHAT_NO_PROMPT = 1,    /* without what begins the assistant's next turn */
    AG_CHAT_CONTINUE = 2,     /* the last message is the assistant's and is to be gone on with */
    AG_CHAT_NO_REWRITING = 4, /* exactly what transformers would render: messages as they came */
    AG_CHAT_NO_CALLS = 8, /* tool_choice "none": nothing in the answer is taken for a call, though
                           * the model is told of the tools */
};
/* Appends the conversation, as the template writes it, to *ids; *text, which may be NULL, gets the
 * same as text. Words of messages, tools, documents and variables never become special tokens, nor
 * others that this template uses as marks. Answers that ag_chat_add_answer() was told of keep the
 * ids they were sampled with. AG_REFUSED brings the template's own words;
 * AG_LIMIT names the limit that the template exceeds, and its line. */
AG_API ag_status ag_chat_render(ag_chat *c, unsigned flags, ag_ids *ids, ag_text *text,
                                ag_error *err);
enum {
    AG_CHAT_SEVERAL_CALLS = 1, /* more calls may follow, if ag_chat_format_repeats_calls() */
};
/* Behind ag_chat_render(), for tool_choice "required" or a name: appends to *ids what begins a
 * call, as the template writes it, and to *grammar the rule (AG_CONSTRAINT_GRAMMAR, constrain.h) of
 * all that the model then writes: a call of the tool `name`, or, NULL, of any, whose arguments obey
 * its parameters. The parser that is created next knows of this. AG_NOT_FOUND: there is no such
 * tool; AG_UNSUPPORTED says what of the format or the parameters cannot be constrained, if
 * ag_constraint_create() does not. */
AG_API ag_status ag_chat_require_call(ag_chat *c, const char *name, unsigned flags, ag_ids *ids,
                                      ag_text *grammar, ag_error *err);
/* How many leading ids of b equal those of a: what a session that holds a need not read again. */
AG_API size_t ag_chat_common_prefix(const ag_ids *a, const ag_ids *b);

/* ---- answers ---- */

typedef enum ag_chat_delta_kind {
    AG_CHAT_DELTA_CONTENT,   /* text */
    AG_CHAT_DELTA_REASONING, /* text */
    AG_CHAT_DELTA_CALL,      /* a call begins: id and name */
    AG_CHAT_DELTA_ARGUMENTS, /* text: more of its arguments, which joined are a JSON object */
} ag_chat_delta_kind;

typedef struct ag_chat_delta {
    ag_chat_delta_kind kind;
    size_t call;          /* of CALL and ARGUMENTS: which one of the answer's, from 0 */
    const char *id;       /* of CALL */
    const char *name;     /* of CALL */
    const char *text;     /* whole characters, as far as they came whole */
    size_t len;           /* of text */
    uint64_t reserved[2]; /* 0: what later versions tell */
} ag_chat_delta;

/* Reads one answer. One thread at a time. */
typedef struct ag_chat_parser ag_chat_parser;

/* For the answer to what ag_chat_render() rendered last: a call is looked for where there are
 * tools, and where the prompt left a reasoning open the answer begins in it. c and its format are
 * borrowed. */
AG_API ag_status ag_chat_parser_create(ag_chat *c, ag_chat_parser **out, ag_error *err);
AG_API void ag_chat_parser_destroy(ag_chat_parser *p);
/* More of the answer's text, special tokens spelled out (keep_special), in pieces of any size. */
AG_API ag_status ag_chat_parser_push(ag_chat_parser *p, const char *text, size_t len,
                                     ag_error *err);
/* The answer ends here: what was waiting for more becomes what it is. A call that was cut short
 * stays cut short. */
AG_API ag_status ag_chat_parser_finish(ag_chat_parser *p, ag_error *err);
/* The next delta of what was pushed; false when there is none for now. Its texts are valid until
 * the next call that is given p. */
AG_API bool ag_chat_parser_next(ag_chat_parser *p, ag_chat_delta *delta);
/* Calls that have begun. */
AG_API size_t ag_chat_parser_n_calls(const ag_chat_parser *p);
/* Appends the answer so far as a message, {"role": "assistant", "content": ..., ...}. */
AG_API ag_status ag_chat_parser_message(const ag_chat_parser *p, ag_text *json, ag_error *err);

/* The answer becomes the conversation's next message. ids[0..n), if given, are what was sampled,
 * without what ended the answer: whenever this message, or one with the same calls or the same
 * text, is rendered again, these ids stand there. */
AG_API ag_status ag_chat_add_answer(ag_chat *c, const ag_chat_parser *p, const int32_t *ids,
                                    size_t n, ag_error *err);

/* For conversations that a client keeps, of which each turn makes an ag_chat anew: appends to *json
 * what p has read and ids[0..n), all that was sampled of it, behind what ag_chat_require_call() put
 * into the prompt. AG_UNSUPPORTED where the text would not be found again as it stands: it holds
 * special tokens that a client can only write as text. */
AG_API ag_status ag_chat_keep_answer(const ag_chat *c, const ag_chat_parser *p, const int32_t *ids,
                                     size_t n, ag_text *json, ag_error *err);
/* An answer that was kept so, of a conversation of the same model: a message of this one that says
 * the same, in content, calls and, if it has any, reasoning, is rendered with these ids. Of equal
 * ones the first is for the first message. AG_FORMAT: it is nothing that was kept, or of another
 * tokenizer or template, or its ids do not spell its message. */
AG_API ag_status ag_chat_restore_answer(ag_chat *c, const char *json, size_t len, ag_error *err);

/* ---- asking for a text again ---- */

/* What announces the tokens of a replay to the model: the lists of the same names in
 * ag_compress_params (session.h). Owned. */
typedef struct ag_replay_request {
    ag_ids instruction, instruction_next, suffix;
} ag_replay_request;
/* f: NULL for a model without a template, whose suffix is a newline. */
AG_API ag_status ag_replay_request_make(const ag_tokenizer *t, const ag_chat_format *f,
                                        ag_replay_request *out, ag_error *err);
AG_API void ag_replay_request_free(ag_replay_request *r);
/* ag_compress_defaults() with these lists, which are borrowed: how much stays is still to be said.
 */
AG_API ag_compress_params ag_replay_request_params(const ag_replay_request *r);

#ifdef __cplusplus
}
#endif
#endif
