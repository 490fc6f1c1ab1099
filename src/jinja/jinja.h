/* SPDX-License-Identifier: Apache-2.0 */
/* Template interpreter: runs Jinja as Hugging Face transformers does, with an immutable sandbox,
 * trim_blocks, lstrip_blocks, loop controls, {% generation %}, a tojson that neither sorts nor
 * escapes HTML, raise_exception and strftime_now. A template is parsed once and may be rendered
 * many times, by several threads at once. Templates are untrusted: time, depth, output and memory
 * are bounded.
 *
 * The output tells which of its bytes come from strings of the variables (the input) and which from
 * the template, so that a caller can look for special tokens in the template's bytes only. */
#ifndef AG_JINJA_H
#define AG_JINJA_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef struct ag_jinja ag_jinja;

/* Limits of a render; 0: the default. A render that exceeds one fails with AG_LIMIT. */
typedef struct ag_jinja_limits {
    uint64_t steps;      /* about one per evaluated node, and one per 32 bytes processed */
    uint32_t depth;      /* nested expressions, statements and macro calls */
    size_t output_bytes; /* size of the rendered text */
    size_t memory_bytes; /* values, strings, the rendered text and its spans */
} ag_jinja_limits;

enum {
    AG_JINJA_STEPS = 10000000,
    AG_JINJA_DEPTH = 600,
    AG_JINJA_OUTPUT_BYTES = 64 << 20,
    AG_JINJA_MEMORY_BYTES = 256 << 20,
};

/* Steps and memory that a render used, also of a failed one. */
typedef struct ag_jinja_usage {
    uint64_t steps;
    size_t peak_bytes;            /* maximum memory at one time */
    bool over_steps, over_memory; /* the limit that ended the render, if it was one of these */
} ag_jinja_usage;

typedef struct ag_jinja_input {
    const json_t *variables; /* object or NULL; its strings and keys are the input */
    const json_t *trusted; /* object or NULL; its strings (bos_token ...) count as the template's */
    const struct tm *now;  /* for strftime_now; NULL: local time of the system */
    ag_jinja_limits limits;
    ag_jinja_usage *usage; /* written if not NULL */
} ag_jinja_input;

typedef struct ag_jinja_span {
    size_t begin, end;
} ag_jinja_span;

typedef struct ag_jinja_output {
    char *text; /* owned, UTF-8, NUL-terminated; may contain NUL */
    size_t len;
    ag_jinja_span *spans; /* owned; the bytes of the input: ascending, not adjacent, not empty */
    size_t n_spans;
} ag_jinja_output;

/* Parses text[0..n), which is copied. `name` starts the messages. Fails with AG_FORMAT for a
 * malformed template or invalid UTF-8, with AG_LIMIT if it is too large or nested too deeply. */
ag_status ag_jinja_parse(const char *name, const char *text, size_t n, ag_jinja **out,
                         ag_error *err);
void ag_jinja_destroy(ag_jinja *t);

/* Renders the template. A name in `variables` hides the same name in `trusted`; both are borrowed
 * for the call. *out is overwritten; the caller must free it with ag_jinja_output_free(), also
 * after a failure.
 *
 * Fails with AG_REFUSED if the template called raise_exception (the message is the template's own,
 * without prefix), AG_INVALID for an evaluation error such as adding a number to a string,
 * AG_UNSUPPORTED for a feature of Python that the interpreter does not have, AG_LIMIT if a limit is
 * exceeded, AG_CANCELLED if the thread's interrupt function (antigravity/interrupt.h) returned
 * true. */
ag_status ag_jinja_render(const ag_jinja *t, const ag_jinja_input *in, ag_jinja_output *out,
                          ag_error *err);
void ag_jinja_output_free(ag_jinja_output *out);

/* Returns whether an expression of the template reads the variable `name`. */
bool ag_jinja_reads(const ag_jinja *t, const char *name);

#endif
