/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: Jinja as Hugging Face transformers runs it (an immutable sandbox, trim_blocks,
 * lstrip_blocks, loop controls, {% generation %}, a tojson that neither sorts nor escapes HTML,
 * raise_exception, strftime_now). A template is parsed once and rendered any number of times, by
 * several threads at once if need be. Nobody vouches for a template: what it may use is bounded.
 *
 * Each byte of the output is known to come either from a string of the conversation or from the
 * template: who turns the text into tokens looks for special tokens in the template's bytes only.
 */
#ifndef AG_JINJA_H
#define AG_JINJA_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef struct ag_jinja ag_jinja;

/* 0 means the default. What exceeds one of them ends in AG_LIMIT. */
typedef struct ag_jinja_limits {
    uint64_t steps;      /* about one a node evaluated, and one for every 32 bytes worked on */
    uint32_t depth;      /* of expressions, statements and macro calls in each other */
    size_t output_bytes; /* of the rendered text */
    size_t memory_bytes; /* limit of values, texts, the rendered text and its spans */
} ag_jinja_limits;

enum {
    AG_JINJA_STEPS = 10000000,
    AG_JINJA_DEPTH = 600,
    AG_JINJA_OUTPUT_BYTES = 64 << 20,
    AG_JINJA_MEMORY_BYTES = 256 << 20,
};

/* Steps and memory of a render, successful or not. */
typedef struct ag_jinja_usage {
    uint64_t steps;
    size_t peak_bytes;            /* the most memory at one time */
    bool over_steps, over_memory; /* which limit ended it, if one of these two did */
} ag_jinja_usage;

typedef struct ag_jinja_input {
    const json_t *variables; /* object or NULL; its strings, keys too, are the conversation's */
    const json_t *trusted;   /* object or NULL; its strings (bos_token ...) count as template */
    const struct tm *now;    /* for strftime_now; NULL: the system's local time */
    ag_jinja_limits limits;
    ag_jinja_usage *usage; /* filled in; NULL is fine */
} ag_jinja_input;

typedef struct ag_jinja_span {
    size_t begin, end;
} ag_jinja_span;

typedef struct ag_jinja_output {
    char *text; /* owned, UTF-8, terminated; may hold NUL */
    size_t len;
    ag_jinja_span *spans; /* owned; the conversation's bytes: ascending, apart, none empty */
    size_t n_spans;
} ag_jinja_output;

/* text[0..n) is copied. `name` begins the messages. AG_FORMAT: the template is malformed, or is not
 * UTF-8; AG_LIMIT: it is nested too deeply or too large. */
ag_status ag_jinja_parse(const char *name, const char *text, size_t n, ag_jinja **out,
                         ag_error *err);
void ag_jinja_destroy(ag_jinja *t);

/* A name of `variables` hides the same one of `trusted`. Both are borrowed for the call; out is
 * overwritten and to be freed with ag_jinja_output_free, also after a failure.
 *
 * AG_REFUSED: the template called raise_exception; the message is the template's own, without any
 * prefix. AG_INVALID: an error of evaluation, such as adding a number to a string.
 * AG_UNSUPPORTED: what Python does and this interpreter does not. AG_LIMIT: see above.
 * AG_CANCELLED: the thread's interrupt function (antigravity/interrupt.h) returned true. */
ag_status ag_jinja_render(const ag_jinja *t, const ag_jinja_input *in, ag_jinja_output *out,
                          ag_error *err);
void ag_jinja_output_free(ag_jinja_output *out);

/* Whether an expression of the template reads the variable of that name. */
bool ag_jinja_reads(const ag_jinja *t, const char *name);

#endif
