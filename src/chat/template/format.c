/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/template/format.h"

#include "chat/json_scan.h"
#include "chat/json_text.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

static const char *const feature_names[] = {
    "system",        "developer", "tools",           "calls",           "parallel calls",
    "results",       "text",      "parts",           "null content",    "argument objects",
    "argument text", "reasoning", "thinking switch", "opens reasoning", "documents",
};

const char *ag_chat_feature_name(uint32_t feature) {
    for (size_t i = 0; i < sizeof feature_names / sizeof *feature_names; i++) {
        if (feature == 1u << i) return feature_names[i];
    }
    return NULL;
}

uint32_t ag_chat_format_features(const ag_chat_format *f) { return f->features; }

const char *const *ag_chat_format_stops(const ag_chat_format *f, size_t *n) {
    *n = f->n_stops;
    return (const char *const *)f->stops;
}

const int32_t *ag_chat_format_stop_ids(const ag_chat_format *f, size_t *n) {
    *n = f->n_stop_ids;
    return f->stop_ids;
}

const char *ag_chat_format_not_probed(const ag_chat_format *f) {
    return *f->not_probed ? f->not_probed : NULL;
}

void ag_chat_format_reset_detected(ag_chat_format *f) {
    for (size_t i = 0; i < f->n_stops; i++) ag_free(f->stops[i]);
    f->n_stops = f->n_stop_ids = 0;
    ag_free(f->turn_end);
    ag_free(f->content_open);
    ag_free(f->reasoning_open);
    ag_free(f->reasoning_close);
    f->turn_end = f->content_open = f->reasoning_open = f->reasoning_close = NULL;
    f->reasoning_key = NULL;
    ag_call_format_free(&f->calls);
    f->has_detected_calls = false;
    f->features = f->accepts = 0;
}

void ag_chat_format_destroy(ag_chat_format *f) {
    if (!f) return;
    for (size_t i = 0; i < f->n_special_texts; i++) ag_free(f->special_texts[i].spelling);
    ag_chat_format_reset_detected(f);
    ag_free(f->special_texts);
    json_decref(f->trusted);
    ag_jinja_destroy(f->jinja);
    ag_free(f);
}

ag_status ag_chat_format_render(const ag_chat_format *f, const json_t *variables,
                                const struct tm *now, ag_jinja_limits limits, ag_jinja_usage *usage,
                                ag_jinja_output *out, ag_error *err) {
    const ag_jinja_input in = {.variables = variables,
                               .trusted = f->trusted,
                               .now = now,
                               .limits = limits,
                               .usage = usage};
    const ag_status st = ag_jinja_render(f->jinja, &in, out, err);
    return st == AG_OK ? st : ag_error_prefix(err, st, "the chat template");
}

bool ag_chat_format_add_aliases(const ag_chat_format *f, const json_t *tools, json_t *variables,
                                const struct tm *now) {
    bool ok = true;
    if (ag_jinja_reads(f->jinja, "functions") && !json_object_get(variables, "functions")) {
        json_t *text = tools ? ag_json_text_string(tools, JSON_INDENT(4)) : json_string("[]");
        ok = json_object_set_new(variables, "functions", text) == 0;
    }
    if (ok && ag_jinja_reads(f->jinja, "datetime") && !json_object_get(variables, "datetime")) {
        char text[64];
        strftime(text, sizeof text, "%b %d %Y %H:%M:%S", now);
        ok = json_object_set_new(variables, "datetime", json_string(text)) == 0;
    }
    return ok;
}

bool ag_chat_format_ends_in_reasoning(const ag_chat_format *f, const char *s, size_t n) {
    const size_t len = strlen(f->reasoning_open);
    while (n && ag_is_json_space(s[n - 1])) n--;
    return n >= len && !memcmp(s + n - len, f->reasoning_open, len);
}
