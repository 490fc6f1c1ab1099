/* SPDX-License-Identifier: Apache-2.0 */
/* A template and what was learnt of it. */
#ifndef AG_CHAT_FORMAT_H
#define AG_CHAT_FORMAT_H

#include "chat/calls/call_format.h"
#include "jinja/jinja.h"

#include <antigravity/chat.h>

enum { AG_CHAT_STOPS = 8 };

/* Limits: steps of all renders that probe a template together, and the memory of each. */
enum { AG_PROBE_STEPS = 2000000, AG_PROBE_MEMORY_BYTES = 16 << 20 };

typedef struct ag_probe_budget {
    uint64_t steps; /* left */
    bool over_steps, over_memory;
} ag_probe_budget;

/* What a template was found to bear beyond the public features. */
enum {
    AG_BEARS_SYSTEMS = 1 << 0,     /* several system messages at the beginning */
    AG_BEARS_LATE_SYSTEM = 1 << 1, /* a system message between turns */
    AG_BEARS_NO_TOOLS = 1 << 2,    /* tools is none; else it wants an empty list */
    AG_BEARS_LONG_IDS = 1 << 3,    /* ids of calls that are not 9 letters and digits */
    AG_BEARS_BARE_TOOLS = 1 << 4,  /* tools whose parameters have no description */
};

/* A spelling that users' words must not become. */
typedef struct ag_chat_mark {
    char *spelling; /* owned */
    size_t len;
    int32_t id;
    bool is_special, lstrip, rstrip;
} ag_chat_mark;

struct ag_chat_format {
    ag_jinja *jinja;
    const ag_tokenizer *tokenizer; /* borrowed; NULL: texts only */
    uint64_t checksum;             /* of tokenizer and template; 0 without a tokenizer */
    json_t *trusted;               /* bos_token, eos_token */
    uint32_t features, bears;
    ag_probe_budget *budget;                /* while the template is probed; else NULL */
    char not_probed[64];                    /* why it could not be; "": it was */
    const char *reasoning_key;              /* of a message; static; NULL: none is read */
    char *reasoning_open, *reasoning_close; /* NULL: none was found */
    ag_call_format calls;
    bool has_learnt_calls;
    char *content_open; /* a mark before the content of an answer; NULL: none */
    char *turn_end;     /* stands behind an assistant's turn; NULL: nothing to be found by */
    char *stops[AG_CHAT_STOPS];
    size_t n_stops;
    int32_t stop_ids[AG_CHAT_STOPS];
    size_t n_stop_ids;
    ag_chat_mark *marks; /* by first byte, the longest first */
    size_t n_marks;
    uint32_t first_mark[257]; /* marks[first_mark[b]..first_mark[b + 1]) begin with the byte b */
};

/* Renders; `variables` is an object. The message of an error says that it is the template's. usage
 * may be NULL. */
ag_status ag_chat_format_render(const ag_chat_format *f, const json_t *variables,
                                const struct tm *now, ag_jinja_limits limits, ag_jinja_usage *usage,
                                ag_jinja_output *out, ag_error *err);

/* Names that one family's templates have for tools and the clock, where nobody gave them. */
bool ag_chat_add_other_names(const ag_chat_format *f, const json_t *tools, json_t *variables,
                             const struct tm *now);

/* probe.c: features and bears, for a format whose template has been parsed. AG_LIMIT, also of the
 * next two: the budget is exceeded. */
ag_status ag_chat_probe(ag_chat_format *f, ag_error *err);
/* learn.c: marks of turns and reasoning; learn_calls.c: of calls. After the probes. */
ag_status ag_chat_learn(ag_chat_format *f, const char *jinja, ag_error *err);
ag_status ag_chat_learn_calls(ag_chat_format *f, ag_error *err);
/* Sets the marks of reasoning that the template's text has, or else the usual ones. */
ag_status ag_chat_guess_reasoning(ag_chat_format *f, const char *jinja, ag_error *err);
/* Bytes of the mark that s begins with behind white space: a special token, <...>, [...], or else a
 * line; *space is how much white space that is. */
size_t ag_chat_mark_len(const ag_chat_format *f, const char *s, size_t *space);
/* How long a and b are the same, without dividing a tag. */
size_t ag_chat_common_prefix_len(const char *a, const char *b);
/* A text that ends an answer, once; with its id where it is one token. */
ag_status ag_chat_add_stop(ag_chat_format *f, const char *s, size_t n, ag_error *err);
/* marks.c: what the tokenizer has of spellings, as far as this template uses them. */
ag_status ag_chat_collect_marks(ag_chat_format *f, const char *jinja, ag_error *err);

/* ---- probes: small conversations ---- */

#define AG_PROBE_QUESTION "Q7vq first question"
#define AG_PROBE_ANSWER "Q7va an answer"
#define AG_PROBE_TOOL "q7f_alpha"
#define AG_PROBE_TOOL_2 "q7f_beta"
#define AG_PROBE_KEY "q7k_one"
#define AG_PROBE_KEY_2 "q7k_two"
#define AG_PROBE_VALUE "q7v_one"
#define AG_PROBE_NUMBER "70417"
#define AG_PROBE_ID "q7v000001"

/* Renders messages with these tools (both are taken over; tools may be NULL). *ok: it could be done
 * and out holds it (ag_jinja_output_free in any case). Errors are AG_NOMEM, AG_CANCELLED and, if
 * the budget for probes is exceeded, AG_LIMIT. */
ag_status ag_chat_try(const ag_chat_format *f, json_t *messages, json_t *tools, json_t *more,
                      bool prompt, ag_jinja_output *out, bool *ok, ag_error *err);
json_t *ag_probe_message(const char *role, const char *content);
/* Two tools, AG_PROBE_TOOL and AG_PROBE_TOOL_2, with parameters of these keys. */
json_t *ag_probe_tools(void);
/* {"q7k_one": "q7v_one", "q7k_two": 70417} of the first tool, {"q7k_one": "q7v_one"} of the
 * second. */
json_t *ag_probe_call(const char *name, const char *id, bool has_two, bool as_text);
/* question, calls (an array, taken over) */
json_t *ag_probe_calls(json_t *calls, json_t *content);

#endif
