/* SPDX-License-Identifier: Apache-2.0 */
#include "line_reader.h"

#include "interrupt.h"
#include "line_editor.h"
#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line_reader {
    line_editor *editor; /* owned; NULL: unedited lines */
    bool is_terminal;
    size_t n_lines; /* unedited lines read */
};

line_reader *line_reader_open(bool edited, bool remember) {
    line_reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->is_terminal = edited;
    if (edited) r->editor = line_editor_open(remember);
    return r;
}

void line_reader_close(line_reader *r) {
    if (!r) return;
    line_editor_close(r->editor);
    free(r);
}

bool line_reader_is_edited(const line_reader *r) { return r->editor != NULL; }

void line_reader_begin_answer(line_reader *r) {
    if (r->editor) line_editor_begin_answer(r->editor);
}

void line_reader_collect(line_reader *r) {
    if (r->editor) line_editor_collect(r->editor);
}

void line_reader_end_answer(line_reader *r) {
    if (r->editor) line_editor_end_answer(r->editor);
}

/* Rejects a NUL byte: text after it would be lost. */
static bool refuse_nul(const line_reader *r, char **text, size_t n) {
    const char *at = memchr(*text, '\0', n);
    if (!at) return false;
    complain("standard input: not text: line %zu has a NUL byte at its byte %zu", r->n_lines,
             (size_t)(at - *text) + 1);
    free(*text);
    *text = NULL;
    return true;
}

/* Reads a line with the terminal's own editing. */
static line_event read_plainly(line_reader *r, const char *prompt, char **text) {
    size_t cap = 0;
    if (r->is_terminal) output_write(prompt, strlen(prompt));
    errno = 0;
    ssize_t n = getline(text, &cap, stdin);
    if (n < 0) {
        free(*text);
        *text = NULL;
        const bool by_signal = errno == EINTR;
        clearerr(stdin);
        return by_signal || interrupted() ? LINE_INTERRUPTED : LINE_END;
    }
    if (n && (*text)[n - 1] == '\n') (*text)[--n] = '\0';
    if (n && (*text)[n - 1] == '\r') (*text)[--n] = '\0';
    r->n_lines++;
    return refuse_nul(r, text, (size_t)n) ? LINE_REFUSED : LINE_TEXT;
}

line_event line_read(line_reader *r, const char *prompt, char **text) {
    *text = NULL;
    if (interrupted()) return LINE_INTERRUPTED;
    return r->editor ? line_editor_read(r->editor, prompt, text) : read_plainly(r, prompt, text);
}
