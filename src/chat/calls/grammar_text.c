/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/calls/grammar_text.h"

#include "chat/json_scan.h"
#include "chat/template/special_text.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

ag_status ag_call_put(ag_call_writer *w, const char *s) {
    return ag_text_append_string(w->out, s, w->err);
}

static ag_status put_char(ag_call_writer *w, char c) {
    char escape[8];
    if (c == '"' || c == '\\') snprintf(escape, sizeof escape, "\\%c", c);
    else if (c == '\n') snprintf(escape, sizeof escape, "\\n");
    else if ((unsigned char)c < 0x20) snprintf(escape, sizeof escape, "\\x%02x", (unsigned)c);
    else return ag_text_append(w->out, &c, 1, w->err);
    return ag_call_put(w, escape);
}

ag_status ag_call_put_quoted(ag_call_writer *w, const char *s, size_t n) {
    AG_TRY(ag_call_put(w, "\""));
    for (size_t i = 0; i < n; i++) AG_TRY(put_char(w, s[i]));
    return ag_call_put(w, "\" ");
}

ag_status ag_call_put_delimiter(ag_call_writer *w, const char *s, size_t n) {
    size_t begin = 0, i = 0;
    while (i < n) {
        const ag_special_text *m = ag_special_text_longest(w->f, s + i, n - i, true);
        if (!m && !ag_is_call_count(s[i])) {
            i++;
            continue;
        }
        char atom[24] = "[0-9]{1,4} ";
        if (i > begin) AG_TRY(ag_call_put_quoted(w, s + begin, i - begin));
        if (m) snprintf(atom, sizeof atom, "<[%d]> ", (int)m->id);
        AG_TRY(ag_call_put(w, atom));
        begin = i += m ? m->len : 1;
    }
    return n > begin ? ag_call_put_quoted(w, s + begin, n - begin) : AG_OK;
}

ag_status ag_call_put_closing(ag_call_writer *w, const char *s) {
    const char *end = s ? s + strlen(s) : NULL;
    for (size_t i = 0; s && i < w->f->n_stops; i++) {
        const char *at = strstr(s, w->f->stops[i]);
        if (at && at < end) end = at;
    }
    return s ? ag_call_put_delimiter(w, s, (size_t)(end - s)) : AG_OK;
}

ag_status ag_call_put_literal(ag_call_writer *w, const char *s) {
    return s ? ag_call_put_delimiter(w, s, strlen(s)) : AG_OK;
}

/* Returns whether c needs no escape in a regular expression. */
static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

ag_status ag_call_put_stop_regex(ag_call_writer *w, const char *before, const char *s) {
    size_t n = strlen(s);
    ag_json_trim(&s, &n);
    ag_text regex = {0};
    ag_status st = ag_text_append_string(&regex, before, w->err);
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        const char c = s[i];
        const bool is_sign = (unsigned char)c < 0x80 && c > ' ' && !is_word(c);
        if (is_sign) st = ag_text_append(&regex, "\\", 1, w->err);
        if (st == AG_OK) st = ag_text_append(&regex, &c, 1, w->err);
    }
    if (st == AG_OK) st = ag_call_put_quoted(w, regex.data ? regex.data : "", regex.len);
    ag_text_free(&regex);
    return st;
}
