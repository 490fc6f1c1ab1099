/* SPDX-License-Identifier: Apache-2.0 */
/* Chat format: a chat template, the tokenizer's special tokens that it uses, and what detection
 * (detect/detect.h) found the template to do. Immutable once created. */
#ifndef AG_CHAT_FORMAT_H
#define AG_CHAT_FORMAT_H

#include "chat/calls/call_format.h"
#include "jinja/jinja.h"

#include <antigravity/chat.h>

enum { AG_CHAT_STOPS = 8 };

typedef struct ag_probe_budget ag_probe_budget; /* detect/probe.h */

/* Forms of messages that the template accepts, beyond the public features. */
enum {
    AG_ACCEPTS_SYSTEMS = 1 << 0,     /* several system messages at the start */
    AG_ACCEPTS_LATE_SYSTEM = 1 << 1, /* a system message between turns */
    AG_ACCEPTS_NULL_TOOLS = 1 << 2,  /* null tools; else tools must be a list */
    AG_ACCEPTS_LONG_IDS = 1 << 3,    /* call ids that are not 9 letters and digits */
    AG_ACCEPTS_BARE_TOOLS = 1 << 4,  /* tools whose parameters have no description */
};

/* Special text: the spelling of a token that text of a conversation must not become. */
typedef struct ag_special_text {
    char *spelling; /* owned */
    size_t len;
    int32_t id;
    bool is_special, lstrip, rstrip;
} ag_special_text;

struct ag_chat_format {
    ag_jinja *jinja;
    const ag_tokenizer *tokenizer; /* borrowed; NULL: the format renders text only */
    uint64_t checksum;             /* hash of tokenizer and template; 0 without a tokenizer */
    json_t *trusted;               /* bos_token and eos_token, whose special tokens count */
    uint32_t features, accepts;
    ag_probe_budget *budget;   /* during detection; else NULL */
    char not_probed[64];       /* reason why detection gave up; "": it succeeded */
    const char *reasoning_key; /* message key of the reasoning; static; NULL: none */
    /* Delimiters of reasoning. Detection sets a usual pair if the template writes none. */
    char *reasoning_open, *reasoning_close;
    ag_call_format calls;
    bool has_detected_calls;
    char *content_open; /* delimiter before the content of an answer; NULL: none */
    char *turn_end;     /* delimiter after an assistant's turn; NULL: unknown */
    char *stops[AG_CHAT_STOPS];
    size_t n_stops;
    int32_t stop_ids[AG_CHAT_STOPS];
    size_t n_stop_ids;
    ag_special_text *special_texts; /* sorted by first byte, then longest first */
    size_t n_special_texts;
    /* special_texts[first_special_text[b]..first_special_text[b + 1]) begin with byte b. */
    uint32_t first_special_text[257];
};

/* Renders with these variables, an object. Errors begin with "the chat template". usage may be
 * NULL. */
ag_status ag_chat_format_render(const ag_chat_format *f, const json_t *variables,
                                const struct tm *now, ag_jinja_limits limits, ag_jinja_usage *usage,
                                ag_jinja_output *out, ag_error *err);

/* Adds other names of tools and the clock, "functions" and "datetime" (firefunction), if the
 * template reads them and the caller has not set them. Returns false if out of memory. */
bool ag_chat_format_add_aliases(const ag_chat_format *f, const json_t *tools, json_t *variables,
                                const struct tm *now);

/* Returns whether s[0..n) ends with the delimiter that opens the reasoning, white space ignored. */
bool ag_chat_format_ends_in_reasoning(const ag_chat_format *f, const char *s, size_t n);

/* Frees and zeroes everything that detection sets. */
void ag_chat_format_reset_detected(ag_chat_format *f);

#endif
