/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a parser of answers. Text waits in `pending` until it is certain what it is; a state
 * is a function that takes from it what it can. */
#ifndef AG_CHAT_PARSER_H
#define AG_CHAT_PARSER_H

#include "chat/calls/call_format.h"
#include "chat/json_scan.h"

#include <antigravity/chat.h>
#include <jansson.h>

typedef struct ag_parsed_call {
    char *id, *name;   /* owned */
    ag_text arguments; /* as far as they came */
    bool is_complete;
} ag_parsed_call;

typedef struct ag_queued_delta {
    ag_chat_delta_kind kind;
    size_t call, begin, end; /* in the text that it adds to */
} ag_queued_delta;

/* Takes what it can of the text from p->at on. *again: it changed the state or took something, so
 * that there may be more to do. */
typedef ag_status ag_parser_state(ag_chat_parser *p, bool *again, ag_error *err);

/* What a call is written as, for one without a template: see ag_parser_create. */
typedef struct ag_parser_params {
    const ag_call_format *format;  /* borrowed; NULL: calls are text */
    const ag_call_format *headers; /* borrowed; whose headers are no content, or NULL */
    const char *reasoning_open, *reasoning_close; /* borrowed; NULL: there is no reasoning */
    const char *content_open; /* borrowed; a mark that is not told; NULL: none */
    bool starts_in_reasoning; /* the prompt ended inside the reasoning */
    bool short_id;            /* ids of 9 letters and digits */
    json_t *tools;            /* NULL, or what was offered: kept */
} ag_parser_params;

struct ag_chat_parser {
    ag_parser_params params;
    ag_parser_state *state;
    bool is_final;
    ag_text pending;
    size_t at;       /* what is before was taken */
    size_t decided;  /* at most `at`: from here on it is content, if it turns out to be no call */
    size_t searched; /* [at, seen) was looked at already and is not what the state waits for */

    ag_text content, reasoning;
    ag_parsed_call *calls;
    size_t n_calls, calls_cap;
    ag_queued_delta *queue;
    size_t n_queue, queue_cap, next;

    bool is_bare_excluded; /* the answer did not begin with a call */
    bool is_fenced;        /* and stands between ``` and ``` */
    bool is_bare;          /* the section at hand began without a mark */
    size_t fallback_len;   /* from `held` on: what becomes content if there is no call in it */
    size_t n_calls_before; /* calls when the section began */

    ag_chat_delta_kind body_kind; /* harmony: kind of the message at hand */

    /* the call at hand */
    ag_json_scan scan;
    ag_json_scan value;  /* of arguments that are told when all of them is there */
    size_t scanned;      /* bytes of pending from `at` on that the scan has seen, or `value` */
    uint32_t args_depth; /* of the object in which the arguments stand */
    bool is_first_param, is_text_param, is_cdata;
    char quote; /* of the text in which the scan of a value stands */
    uint32_t depth;
};

/* stream.c */
ag_status ag_parser_create(const ag_parser_params *params, ag_chat_parser **out, ag_error *err);
/* Adds to content or reasoning. */
ag_status ag_parser_emit_text(ag_chat_parser *p, ag_chat_delta_kind kind, const char *text,
                              size_t n, ag_error *err);
/* A call begins: its text before p->at is accounted for. id may be empty: one is made. */
ag_status ag_parser_begin_call(ag_chat_parser *p, const char *name, size_t n_name, const char *id,
                               size_t n_id, ag_error *err);
ag_status ag_parser_emit_arguments(ag_chat_parser *p, const char *text, size_t n, ag_error *err);
/* The schema of an argument of the call at hand, or NULL. */
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

/* stream_text.c */
ag_parser_state ag_parse_start, ag_parse_reasoning, ag_parse_content;
/* Returns the first position in s[from..n) where the mark is, or may be once more text has come; n
 * if there is none. *found: the mark is there. mark may be NULL: n. */
size_t ag_parser_find(const char *delimiter, const char *s, size_t from, size_t n, bool is_final,
                      bool *found);

/* stream_calls.c: between the calls of a section */
ag_parser_state ag_parse_section;
/* What was held is content; the search goes on behind what made it look like a call. */
ag_status ag_parser_reject_call(ag_chat_parser *p, ag_error *err);
/* The call at hand is over: the section goes on. */
void ag_parser_end_call(ag_chat_parser *p, bool is_complete);
/* Name characters that s begins with. */
size_t ag_call_name_len(const char *s, size_t n);

/* stream_json.c, stream_tags.c, stream_python.c, stream_harmony.c: a call begins at p->at */
ag_parser_state ag_parse_json_call, ag_parse_named_call, ag_parse_tagged_call;
ag_parser_state ag_parse_python_call, ag_parse_braces_call, ag_parse_harmony;

#endif
