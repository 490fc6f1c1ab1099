/* SPDX-License-Identifier: Apache-2.0 */
/* Renders templates for tools/jinja_differential.py. Reads one JSON object per line, {"template",
 * "variables", "trusted"}, and writes {"text", "spans"} or {"error", "status"}. A line without
 * template reuses the previous one. */
#include "jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *rendered(const ag_jinja *t, const json_t *line) {
    struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 22, .tm_hour = 12, .tm_wday = 0};
    now.tm_yday = 325;
    ag_jinja_input in = {.variables = json_object_get(line, "variables"),
                         .trusted = json_object_get(line, "trusted"),
                         .now = &now};
    ag_jinja_output out;
    ag_error err;
    if (ag_jinja_render(t, &in, &out, &err) != AG_OK) {
        return json_pack("{s:s%,s:s}", "error", err.msg, strlen(err.msg), "status",
                         ag_status_name(err.status));
    }
    json_t *spans = json_array();
    for (size_t i = 0; i < out.n_spans; i++) {
        json_array_append_new(spans, json_integer((json_int_t)out.spans[i].begin));
        json_array_append_new(spans, json_integer((json_int_t)out.spans[i].end));
    }
    json_t *result = json_pack("{s:s%,s:o}", "text", out.text, out.len, "spans", spans);
    ag_jinja_output_free(&out);
    return result;
}

int main(void) {
    char *text = NULL;
    size_t cap = 0;
    ag_jinja *t = NULL;
    ag_error err = {.status = AG_OK};
    for (ssize_t n; (n = getline(&text, &cap, stdin)) > 0;) {
        json_t *line = json_loadb(text, (size_t)n, JSON_ALLOW_NUL, NULL);
        if (!line) return 2;
        const json_t *source = json_object_get(line, "template");
        if (source) {
            ag_jinja_destroy(t);
            ag_jinja_parse("template", json_string_value(source), json_string_length(source), &t,
                           &err);
        }
        json_t *result =
            t ? rendered(t, line)
              : json_pack("{s:s,s:s}", "error", err.msg, "status", ag_status_name(err.status));
        if (!result) result = json_pack("{s:s,s:s}", "error", "not UTF-8", "status", "BROKEN");
        json_dumpf(result, stdout, JSON_COMPACT);
        fputc('\n', stdout);
        fflush(stdout);
        json_decref(result);
        json_decref(line);
    }
    ag_jinja_destroy(t);
    free(text);
    return 0;
}
