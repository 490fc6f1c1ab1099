/* SPDX-License-Identifier: Apache-2.0 */
/* A template and what was learnt of it. */
#ifndef AG_CHAT_FORMAT_H
#define AG_CHAT_FORMAT_H

#include "chat/calls/call_format.h"
#include "jinja/jinja.h"

#include <antigravity/chat.h>

enum { AG_CHAT_STOPS = 8 };

typedef struct ag_probe_budget ag_probe_budget; /* detect/probe.h */

/* What a template was found to bear beyond the public features. */
enum {
    AG_ACCEPTS_SYSTEMS = 1 << 0,     /* several system messages at the beginning */
    AG_ACCEPTS_LATE_SYSTEM = 1 << 1, /* a system message between turns */
    AG_ACCEPTS_NULL_TOOLS = 1 << 2,  /* tools is none; else it wants an empty list */
    AG_ACCEPTS_LONG_IDS = 1 << 3,    /* ids of calls that are not 9 letters and digits */
    AG_ACCEPTS_BARE_TOOLS = 1 << 4,  /* tools whose parameters have no description */
};

/* A spelling that users' words must not become. */
typedef struct ag_special_text {
    char *spelling; /* owned */
    size_t len;
    int32_t id;
    bool is_special, lstrip, rstrip;
} ag_special_text;

struct ag_chat_format {
    ag_jinja *jinja;
    const ag_tokenizer *tokenizer; /* borrowed; NULL: texts only */
    uint64_t checksum;             /* of tokenizer and template; 0 without a tokenizer */
    json_t *trusted;               /* bos_token, eos_token */
    uint32_t features, accepts;
    ag_probe_budget *budget;                /* while the template is probed; else NULL */
    char not_probed[64];                    /* why it could not be; "": it was */
    const char *reasoning_key;              /* of a message; static; NULL: none is read */
    char *reasoning_open, *reasoning_close; /* NULL: none was found */
    ag_call_format calls;
    bool has_detected_calls;
    char *content_open; /* a mark before the content of an answer; NULL: none */
    char *turn_end;     /* stands behind an assistant's turn; NULL: nothing to be found by */
    char *stops[AG_CHAT_STOPS];
    size_t n_stops;
    int32_t stop_ids[AG_CHAT_STOPS];
    size_t n_stop_ids;
    ag_special_text *special_texts; /* by first byte, the longest first */
    size_t n_special_texts;
    uint32_t first_special_text[257]; /* marks[first_special_text[b]..first_special_text[b + 1])
                                         begin with the byte b */
};

/* Renders; `variables` is an object. The message of an error says that it is the template's. usage
 * may be NULL. */
ag_status ag_chat_format_render(const ag_chat_format *f, const json_t *variables,
                                const struct tm *now, ag_jinja_limits limits, ag_jinja_usage *usage,
                                ag_jinja_output *out, ag_error *err);

/* Names that one family's templates have for tools and the clock, where nobody gave them. */
bool ag_chat_format_add_aliases(const ag_chat_format *f, const json_t *tools, json_t *variables,
                                const struct tm *now);

/* Frees and zeroes everything that detection sets. */
void ag_chat_format_reset_detected(ag_chat_format *f);

#endif
