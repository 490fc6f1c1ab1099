/* SPDX-License-Identifier: Apache-2.0 */
/* How a model writes calls of tools, learnt from its template by rendering known ones. */
#ifndef AG_CHAT_CALL_FORMAT_H
#define AG_CHAT_CALL_FORMAT_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum ag_call_kind {
    AG_CALLS_JSON,    /* {"name": "f", "arguments": {"a": 1}} */
    AG_CALLS_NAMED,   /* f MARK {"a": 1} */
    AG_CALLS_TAGGED,  /* f, then MARK a MARK 1 MARK for each argument */
    AG_CALLS_PYTHON,  /* f(a=1) */
    AG_CALLS_BRACES,  /* f{a:1,b:MARKtextMARK} */
    AG_CALLS_HARMONY, /* channels and recipients */
} ag_call_kind;

enum { AG_CALL_TRIGGERS = 4 };

/* A calls turn is section_open, then call_open CALL call_close for each, then section_close. Texts
 * are owned; "" where there is nothing. White space in them matches any, or none. */
typedef struct ag_call_format {
    ag_call_kind kind;
    bool is_bare; /* nothing stands before the first call: a call is what begins the answer */
    bool is_parallel;
    bool id_is_name; /* the call's id is "functions.f:0", in which f stands */
    bool has_index;  /* NAMED: ":0" stands behind the name, counted up */
    const char *section_open, *section_close;
    const char *call_open, *call_close;
    /* What else stands there, to write calls with: behind section_open and before section_close,
     * such as the brackets of a list, and between two calls. NULL: nothing. */
    const char *list_open, *list_close, *between;
    const char *triggers[AG_CALL_TRIGGERS]; /* how a section may begin; NULL behind the last */
    const char *name_key, *arguments_key;   /* JSON */
    const char *object; /* JSON: a call as the template writes one, of the tool AG_PROBE_TOOL */
    const char
        *name_end; /* NAMED: between name and arguments; TAGGED: between name and first argument */
    const char *id_open; /* NAMED: between name and an id, which name_end follows */
    const char *param_open, *param_close; /* TAGGED: around name and value of an argument */
    const char *param_text, *param_json; /* TAGGED: between them, where the value is text or JSON */
    const char *param_between;           /* TAGGED: between two arguments, or NULL */
    const char *quote;                   /* BRACES: around text */
    /* Where each call is a message with a header that names the tool, too: what stands before that
     * name, first and behind another message, and what ends the header. NULL: no headers. */
    const char *header_open, *header_between, *header_close;
} ag_call_format;

void ag_call_format_free(ag_call_format *f);

/* <tool_call>{"name": ..., "arguments": ...}</tool_call>: where a template shows nothing. */
ag_status ag_call_format_default(ag_call_format *out, ag_error *err);

typedef enum ag_match { AG_MATCH_NO, AG_MATCH_PARTIAL, AG_MATCH_YES } ag_match;
/* Whether s[0..n) begins with the pattern, in which white space stands for any or none, and at
 * its end for nothing; *len is how much of s it took. PARTIAL: as far as s goes. */
ag_match ag_match_delimiter(const char *pattern, const char *s, size_t n, size_t *len);

#endif
