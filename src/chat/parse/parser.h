/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of answers: a state machine that splits an answer, pushed in pieces, into reasoning,
 * content and tool calls. Text waits in `pending` until its kind is certain. Each state is a
 * function. */
#ifndef AG_CHAT_PARSER_H
#define AG_CHAT_PARSER_H

#include "chat/calls/call_format.h"
#include "chat/json_scan.h"

#include <antigravity/chat.h>
#include <jansson.h>

typedef struct ag_parsed_call {
    char *id, *name;   /* owned */
    ag_text arguments; /* JSON; grows while the call is read */
    bool is_complete;
} ag_parsed_call;

typedef struct ag_queued_delta {
    ag_chat_delta_kind kind;
    size_t call, begin, end; /* call index, and range in the delta's text */
} ag_queued_delta;

/* Reads what it can of the text at p->at. *again: the state changed or text was consumed, so the
 * next call may read more. */
typedef ag_status ag_parser_state(ag_chat_parser *p, bool *again, ag_error *err);

/* Parameters of a parser. All but tools are borrowed. */
typedef struct ag_parser_params {
    const ag_call_format *format;                 /* NULL: calls are text */
    const ag_call_format *headers;                /* format whose headers are skipped; NULL: none */
    const char *reasoning_open, *reasoning_close; /* NULL: no reasoning */
    const char *content_open; /* delimiter that is not part of the content; NULL: none */
    bool starts_in_reasoning; /* the prompt opened the reasoning */
    bool short_id;            /* made ids have 9 letters and digits */
    json_t *tools;            /* tools that the request offers; a reference is taken; NULL: none */
} ag_parser_params;

struct ag_chat_parser {
    ag_parser_params params;
    ag_parser_state *state;
    bool is_final;
    ag_text pending;
    size_t at;       /* pending[0..at) was consumed */
    size_t decided;  /* <= at; the text from here to `at` may still be content */
    size_t searched; /* [at, searched) does not contain what the state looks for */

    ag_text content, reasoning;
    ag_parsed_call *calls;
    size_t n_calls, calls_cap;
    ag_queued_delta *queue;
    size_t n_queue, queue_cap, next;

    bool is_bare_excluded; /* the answer does not begin with a call */
    bool is_fenced;        /* calls are in a ``` fence, which the answer began with */
    bool is_bare;          /* the current section began without a delimiter */
    size_t fallback_len;   /* bytes from `decided` on: content, if no call follows */
    size_t n_calls_before; /* n_calls when the section began */

    ag_chat_delta_kind body_kind; /* harmony: kind of the current message */

    /* The current call. */
    ag_json_scan scan;
    ag_json_scan value;  /* scan of arguments that are emitted when they are complete */
    size_t scanned;      /* bytes from `at` on that a scan has read */
    uint32_t args_depth; /* depth of the object that holds the arguments */
    bool is_first_param, is_text_param, is_cdata;
    char quote; /* opening quote of the string that a scan is in; 0: none */
    uint32_t depth;
};

ag_status ag_parser_create(const ag_parser_params *params, ag_chat_parser **out, ag_error *err);
/* Appends text to the content or the reasoning, and queues a delta. */
ag_status ag_parser_emit_text(ag_chat_parser *p, ag_chat_delta_kind kind, const char *text,
                              size_t n, ag_error *err);
/* Adds a call and queues a delta. The text before p->at is decided. n_id == 0: makes an id. */
ag_status ag_parser_begin_call(ag_chat_parser *p, const char *name, size_t n_name, const char *id,
                               size_t n_id, ag_error *err);
ag_status ag_parser_emit_arguments(ag_chat_parser *p, const char *text, size_t n, ag_error *err);
/* Returns the schema of an argument of the current call; NULL if the tools have none. Borrowed. */
const json_t *ag_parser_param_schema(const ag_chat_parser *p, const char *key);
bool ag_parser_has_tool(const ag_chat_parser *p, const char *name, size_t n);

static inline const char *ag_parser_unread(const ag_chat_parser *p, size_t *n) {
    *n = p->pending.len - p->at;
    return p->pending.data ? p->pending.data + p->at : "";
}
static inline void ag_parser_consume(ag_chat_parser *p, size_t n) {
    p->at += n;
    p->scanned = p->scanned > n ? p->scanned - n : 0;
}
/* Consumes n bytes. All text before them and they are decided. */
static inline void ag_parser_decide(ag_chat_parser *p, size_t n) {
    ag_parser_consume(p, n);
    p->decided = p->at;
}

/* Reasoning and content (text.c). */
ag_parser_state ag_parse_start, ag_parse_reasoning, ag_parse_content;
/* Returns the first position in s[from..n) where the delimiter is, or may be when more text
 * arrives; n if there is none. *found: the delimiter is there. A NULL delimiter is never found. */
size_t ag_parser_find(const char *delimiter, const char *s, size_t from, size_t n, bool is_final,
                      bool *found);

/* Between the calls of a section (calls.c). */
ag_parser_state ag_parse_section;
/* Ends a section that is not one: its undecided text becomes content, and the search for calls
 * continues after what looked like the start of a call. */
ag_status ag_parser_reject_call(ag_chat_parser *p, ag_error *err);
/* Ends the current call and returns to the section. */
void ag_parser_end_call(ag_chat_parser *p, bool is_complete);
/* Returns the number of bytes of s[0..n) that form a tool's name: letters, digits, "_-./" and
 * non-ASCII characters. */
size_t ag_call_name_len(const char *s, size_t n);

/* A call at p->at, by kind (json_call.c, tagged_call.c, python_call.c, harmony.c). */
ag_parser_state ag_parse_json_call, ag_parse_named_call, ag_parse_tagged_call;
ag_parser_state ag_parse_python_call, ag_parse_braces_call, ag_parse_harmony;

#endif
