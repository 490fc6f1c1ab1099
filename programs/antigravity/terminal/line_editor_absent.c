/* SPDX-License-Identifier: Apache-2.0 */
/* line_editor.h without libedit. */
#include "line_editor.h"

#include <stddef.h>

line_editor *line_editor_open(bool remember) {
    (void)remember;
    return NULL;
}

void line_editor_close(line_editor *e) { (void)e; }

void line_editor_begin_answer(line_editor *e) { (void)e; }
void line_editor_collect(line_editor *e) { (void)e; }
void line_editor_end_answer(line_editor *e) { (void)e; }

line_event line_editor_read(line_editor *e, const char *prompt, char **text) {
    (void)e, (void)prompt;
    *text = NULL;
    return LINE_END;
}
