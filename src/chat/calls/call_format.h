/* SPDX-License-Identifier: Apache-2.0 */
/* Call format: how a model writes tool calls, detected by rendering known calls with its template.
 */
#ifndef AG_CHAT_CALL_FORMAT_H
#define AG_CHAT_CALL_FORMAT_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum ag_call_kind {
    AG_CALLS_JSON,    /* {"name": "f", "arguments": {"a": 1}} */
    AG_CALLS_NAMED,   /* f DELIMITER {"a": 1} */
    AG_CALLS_TAGGED,  /* f, then DELIMITER a DELIMITER 1 DELIMITER for each argument */
    AG_CALLS_PYTHON,  /* f(a=1) */
    AG_CALLS_BRACES,  /* f{a:1,b:QUOTEtextQUOTE} */
    AG_CALLS_HARMONY, /* gpt-oss: messages with channels and recipients */
} ag_call_kind;

enum { AG_CALL_TRIGGERS = 4 };

/* In call_open: a number that counts the calls of an answer, from 0 or from 1. */
enum { AG_CALL_COUNT_0 = 1, AG_CALL_COUNT_1 = 2 };

static inline bool ag_is_call_count(char c) { return c == AG_CALL_COUNT_0 || c == AG_CALL_COUNT_1; }

/* Delimiters of a section of calls: section_open, then call_open CALL call_close for each call,
 * then section_close. All texts are owned. They are "" if the template writes nothing there, and
 * NULL if the kind does not use them. White space in a delimiter matches any white space, or
 * none. */
typedef struct ag_call_format {
    ag_call_kind kind;
    bool is_bare; /* the template writes no delimiter before calls */
    bool is_parallel;
    bool id_is_name; /* the template writes the id, "functions.f:0", in place of the name */
    bool has_index;  /* NAMED: ":0" follows the name; the number counts the calls */
    const char *section_open, *section_close;
    const char *call_open, *call_close;
    /* Texts that calls are written with but that are not required: after section_open and before
     * section_close, such as the brackets of a list, and between two calls. NULL: none. */
    const char *list_open, *list_close, *between;
    const char *triggers[AG_CALL_TRIGGERS]; /* starts of a section; NULL after the last */
    const char *name_key, *arguments_key;   /* JSON: keys of a call */
    const char *object;   /* JSON: a call of AG_PROBE_TOOL as the template writes it */
    const char *name_end; /* before the arguments: NAMED, TAGGED */
    const char *id_open;  /* NAMED: between name and id; name_end follows the id */
    const char *param_open, *param_close; /* TAGGED: around name and value of an argument */
    const char
        *param_open_json; /* TAGGED: before the name if the value is not text; NULL: as text */
    /* TAGGED: between name and value: text, other JSON. If these two or the texts before the name
     * differ, then by a word for the type; other words are those of other JSON types. */
    const char *param_text, *param_json;
    const char *param_between; /* TAGGED: between two arguments; NULL: nothing */
    const char *quote;         /* BRACES: before and after text */
    /* Headers, if each call is a message whose header names the tool too: the text before that name
     * in the first message and in later ones, and the text after the name. NULL: no headers. */
    const char *header_open, *header_between, *header_close;
} ag_call_format;

void ag_call_format_free(ag_call_format *f);

/* Sets *out to <tool_call>{"name": ..., "arguments": ...}</tool_call>, for templates that write no
 * calls. Fails with AG_NOMEM. */
ag_status ag_call_format_default(ag_call_format *out, ag_error *err);

typedef enum ag_match { AG_MATCH_NO, AG_MATCH_PARTIAL, AG_MATCH_YES } ag_match;
/* Compares the start of s[0..n) with a delimiter. White space in the delimiter matches any white
 * space, or none; at its end it is ignored. YES: *len is the number of bytes that match. PARTIAL: s
 * ends inside the delimiter. */
ag_match ag_match_delimiter(const char *pattern, const char *s, size_t n, size_t *len);

#endif
