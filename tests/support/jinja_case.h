/* SPDX-License-Identifier: Apache-2.0 */
/* Renders a template with variables given as JSON text and checks the result. */
#ifndef AG_TESTS_SUPPORT_JINJA_CASE_H
#define AG_TESTS_SUPPORT_JINJA_CASE_H

#include "jinja/jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Noon of 22 November 2026, a Sunday. */
static inline struct tm jinja_noon(void) {
    return (struct tm){.tm_year = 126, .tm_mon = 10, .tm_mday = 22, .tm_hour = 12, .tm_yday = 325};
}

/* Parses JSON in which ' stands for a double quote. NULL: no variables. */
static inline json_t *jinja_json(const char *json) {
    if (!json) return NULL;
    char *text = strdup(json);
    for (char *p = text; *p; p++) *p = *p == '\'' ? '"' : *p;
    json_error_t why;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &why);
    if (!v) fail_msg("%s: %s", json, why.text);
    free(text);
    return v;
}

static inline ag_status jinja_run(const char *template, const char *variables,
                                  const ag_jinja_limits *limits, ag_jinja_output *out,
                                  ag_error *err) {
    ag_jinja *t;
    struct tm now = jinja_noon();
    *out = (ag_jinja_output){0};
    ag_status st = ag_jinja_parse("case", template, strlen(template), &t, err);
    if (st != AG_OK) return st;
    json_t *v = jinja_json(variables), *own = jinja_json("{'bos_token':'<s>','eos_token':'</s>'}");
    ag_jinja_input in = {.variables = v, .trusted = own, .now = &now};
    if (limits) in.limits = *limits;
    st = ag_jinja_render(t, &in, out, err);
    json_decref(v);
    json_decref(own);
    ag_jinja_destroy(t);
    return st;
}

static inline void jinja_check(const char *template, const char *variables, const char *text) {
    ag_jinja_output out;
    ag_error err;
    if (jinja_run(template, variables, NULL, &out, &err) != AG_OK) {
        fail_msg("%s: %s", template, err.msg);
    }
    if (strcmp(out.text, text) != 0) fail_msg("%s: \"%s\", not \"%s\"", template, out.text, text);
    ag_jinja_output_free(&out);
}

static inline void jinja_check_fails(const char *template, const char *variables, ag_status status,
                                     const char *message) {
    ag_jinja_output out;
    ag_error err = {.msg = ""};
    ag_status st = jinja_run(template, variables, NULL, &out, &err);
    if (st == AG_OK) fail_msg("%s: \"%s\", no error", template, out.text);
    if (st != status || !strstr(err.msg, message)) {
        fail_msg("%s: %s \"%s\", not %s \"%s\"", template, ag_status_name(st), err.msg,
                 ag_status_name(status), message);
    }
}

/* marked: the expected output, with bytes of the input between 【 and 】. */
static inline void jinja_check_spans(const char *template, const char *variables,
                                     const char *marked) {
    ag_jinja_output out;
    ag_error err;
    if (jinja_run(template, variables, NULL, &out, &err) != AG_OK) {
        fail_msg("%s: %s", template, err.msg);
    }
    char *text = calloc(1, out.len + 6 * out.n_spans + 1);
    size_t n = 0, at = 0;
    for (size_t i = 0; i < out.n_spans; i++) {
        const ag_jinja_span *s = &out.spans[i];
        assert_true(s->begin < s->end && s->end <= out.len && (i == 0 || s->begin > s[-1].end));
        n += (size_t)sprintf(text + n, "%.*s\xE3\x80\x90%.*s\xE3\x80\x91", (int)(s->begin - at),
                             out.text + at, (int)(s->end - s->begin), out.text + s->begin);
        at = s->end;
    }
    strcpy(text + n, out.text + at);
    if (strcmp(text, marked) != 0) fail_msg("%s: \"%s\", not \"%s\"", template, text, marked);
    free(text);
    ag_jinja_output_free(&out);
}

#endif
