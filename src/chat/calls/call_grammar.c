/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/calls/call_grammar.h"

#include "chat/detect/sentinels.h"
#include "chat/json_scan.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "chat/parse/parser.h"
#include "chat/template/special_text.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

typedef struct writer {
    const ag_chat_format *f;
    const ag_call_format *c;
    ag_text *out;
    ag_error *err;
} writer;

static ag_status put(writer *w, const char *s) { return ag_text_append_string(w->out, s, w->err); }

/* ---- literals ---- */

static ag_status put_char(writer *w, char c) {
    char escape[8];
    if (c == '"' || c == '\\') snprintf(escape, sizeof escape, "\\%c", c);
    else if (c == '\n') snprintf(escape, sizeof escape, "\\n");
    else if ((unsigned char)c < 0x20) snprintf(escape, sizeof escape, "\\x%02x", (unsigned)c);
    else return ag_text_append(w->out, &c, 1, w->err);
    return put(w, escape);
}

static ag_status put_quoted(writer *w, const char *s, size_t n) {
    AG_TRY(put(w, "\""));
    for (size_t i = 0; i < n; i++) AG_TRY(put_char(w, s[i]));
    return put(w, "\" ");
}

/* Writes special tokens by their ids, counts as numbers, and other text as a string. */
static ag_status put_delimiter(writer *w, const char *s, size_t n) {
    size_t begin = 0, i = 0;
    while (i < n) {
        const ag_special_text *m = ag_special_text_longest(w->f, s + i, n - i, true);
        if (!m && !ag_is_call_count(s[i])) {
            i++;
            continue;
        }
        char atom[24] = "[0-9]{1,4} ";
        if (i > begin) AG_TRY(put_quoted(w, s + begin, i - begin));
        if (m) snprintf(atom, sizeof atom, "<[%d]> ", (int)m->id);
        AG_TRY(put(w, atom));
        begin = i += m ? m->len : 1;
    }
    return n > begin ? put_quoted(w, s + begin, n - begin) : AG_OK;
}

/* Writes what closes calls, up to the first text that ends the answer. */
static ag_status put_closing(writer *w, const char *s) {
    const char *end = s ? s + strlen(s) : NULL;
    for (size_t i = 0; s && i < w->f->n_stops; i++) {
        const char *at = strstr(s, w->f->stops[i]);
        if (at && at < end) end = at;
    }
    return s ? put_delimiter(w, s, (size_t)(end - s)) : AG_OK;
}

static ag_status put_literal(writer *w, const char *s) {
    return s ? put_delimiter(w, s, strlen(s)) : AG_OK;
}

/* Returns whether c needs no escape in a regular expression. */
static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

/* Writes a regular expression, `before` followed by a literal s without white space at its ends. */
static ag_status put_stop_regex(writer *w, const char *before, const char *s) {
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
    if (st == AG_OK) st = put_quoted(w, regex.data ? regex.data : "", regex.len);
    ag_text_free(&regex);
    return st;
}

/* ---- schemas ---- */

static const char *tool_name(const json_t *tool) {
    return json_string_value(json_object_get(ag_chat_function(tool), "name"));
}

/* Rewrites references inside a schema that is now at `path` of another schema. Returns false if out
 * of memory. */
static bool move_references(json_t *v, const char *path) {
    size_t i;
    const char *key;
    json_t *member;
    json_array_foreach(v, i, member) {
        if (!move_references(member, path)) return false;
    }
    json_object_foreach(v, key, member) {
        const char *ref = json_string_value(member);
        if (!strcmp(key, "$ref") && ref && ref[0] == '#' && (ref[1] == '/' || !ref[1])) {
            json_t *moved = json_sprintf("#%s%s", path, ref + 1);
            if (json_object_set_new(v, key, moved) != 0) return false;
        } else if (!move_references(member, path)) {
            return false;
        }
    }
    return true;
}

/* *out: the schema of a tool's arguments, for the place `path` of another schema; owned. */
static ag_status parameters_of(writer *w, const json_t *tool, const char *path, json_t **out) {
    const json_t *own = json_object_get(ag_chat_function(tool), "parameters");
    const char *type = json_string_value(json_object_get(own, "type"));
    *out = NULL;
    if (type && strcmp(type, "object") != 0) {
        return AG_FAIL(w->err, INVALID,
                       "tool \"%.80s\": its parameters have type %.40s; they must be an object",
                       tool_name(tool), type);
    }
    json_t *schema = json_is_object(own) ? json_deep_copy(own) : json_object();
    if (schema && move_references(schema, path) &&
        json_object_set_new(schema, "type", json_string("object")) == 0) {
        *out = schema;
        return AG_OK;
    }
    json_decref(schema);
    return AG_FAIL(w->err, NOMEM, "schema of a tool call");
}

/* Returns the schema of a value that is neither the tool's name nor its arguments: an id, a
 * counter, or a constant. */
static json_t *other_schema(const json_t *sample) {
    const char *s = json_string_value(sample);
    const size_t n = s ? strlen(s) : 0;
    if (s && !strcmp(s, AG_PROBE_ID)) {
        return json_pack("{s:s, s:s}", "type", "string", "pattern", "^[a-zA-Z0-9]{9}$");
    }
    if (n && strspn(s, "0123456789") == n) {
        return json_pack("{s:s, s:s}", "type", "string", "pattern", "^[0-9]{1,3}$");
    }
    return json_pack("{s:O}", "const", sample);
}

/* *out: the schema of a value of the call that the template wrote, `sample`, with the tool's name
 * and parameters in place of the probe's. */
static ag_status call_schema(writer *w, json_t *sample, const json_t *tool, const char *path,
                             json_t **out) {
    const char *s = json_string_value(sample), *key;
    json_t *member;
    *out = NULL;
    if (s && strstr(s, AG_PROBE_KEY)) {
        return AG_FAIL(
            w->err, UNSUPPORTED,
            "tool \"%.80s\": cannot constrain a call: the template writes JSON inside a string",
            tool_name(tool));
    }
    if (s && !strcmp(s, AG_PROBE_TOOL)) {
        *out = json_pack("{s:s}", "const", tool_name(tool));
    } else if (json_object_get(sample, AG_PROBE_KEY)) {
        return parameters_of(w, tool, path, out);
    } else if (!json_is_object(sample)) {
        *out = other_schema(sample);
    } else {
        json_t *properties = json_object(), *required = json_array();
        ag_status st = AG_OK;
        json_object_foreach(sample, key, member) {
            char at[256];
            json_t *one = NULL;
            snprintf(at, sizeof at, "%s/properties/%.60s", path, key);
            if (st == AG_OK) st = call_schema(w, member, tool, at, &one);
            if (json_object_set_new(properties, key, one) != 0 ||
                json_array_append_new(required, json_string(key)) != 0) {
                if (st == AG_OK) st = AG_FAIL(w->err, NOMEM, "schema of a tool call");
            }
        }
        *out = json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties,
                         "required", required, "additionalProperties", 0);
        if (st != AG_OK) {
            json_decref(*out);
            *out = NULL;
            return st;
        }
    }
    return *out ? AG_OK : AG_FAIL(w->err, NOMEM, "schema of a tool call");
}

static ag_status put_schema(writer *w, json_t *schema) {
    const ag_status st = ag_json_text_append(schema, w->out, w->err);
    json_decref(schema);
    return st == AG_OK ? put(w, " ") : st;
}

static ag_status put_parameters(writer *w, const json_t *tool) {
    json_t *schema;
    AG_TRY(parameters_of(w, tool, "", &schema));
    return put_schema(w, schema);
}

/* ---- calls ---- */

static ag_status put_object(writer *w, const json_t *tool) {
    json_t *sample = json_loads(w->c->object, 0, NULL), *schema;
    if (!sample) return AG_FAIL(w->err, NOMEM, "schema of a tool call");
    const ag_status st = call_schema(w, sample, tool, "", &schema);
    json_decref(sample);
    if (st != AG_OK) return st;
    AG_TRY(put(w, "%json "));
    return put_schema(w, schema);
}

static ag_status put_named(writer *w, const json_t *tool) {
    AG_TRY(put_literal(w, tool_name(tool)));
    if (w->c->has_index) AG_TRY(put(w, "\":\" [0-9]{1,4} "));
    if (w->c->id_open) {
        AG_TRY(put_literal(w, w->c->id_open));
        AG_TRY(put(w, "[a-zA-Z0-9]{9} "));
    }
    AG_TRY(put_literal(w, w->c->kind == AG_CALLS_HARMONY ? " <|constrain|>json<|message|>"
                                                         : w->c->name_end));
    AG_TRY(put(w, "%json "));
    return put_parameters(w, tool);
}

static ag_status put_tagged(writer *w, const json_t *tool) {
    const ag_call_format *c = w->c;
    const char *const delimiters[] = {
        c->param_open, c->param_text,  c->param_open_json ? c->param_open_json : c->param_open,
        c->param_json, c->param_close, c->param_between ? c->param_between : "",
    };
    AG_TRY(put_literal(w, tool_name(tool)));
    AG_TRY(put_literal(w, c->name_end));
    AG_TRY(put(w, "%tags("));
    for (size_t i = 0; i < sizeof delimiters / sizeof *delimiters; i++) {
        AG_TRY(put_literal(w, delimiters[i]));
        AG_TRY(put(w, ", "));
    }
    /* The parser reads a value that begins with <![CDATA[ as CDATA. */
    AG_TRY(put_stop_regex(w, "^<!\\[CDATA\\[|", c->param_close));
    AG_TRY(put(w, ") "));
    return put_parameters(w, tool);
}

static ag_status put_code(writer *w, const json_t *tool) {
    const bool is_python = w->c->kind == AG_CALLS_PYTHON;
    AG_TRY(put_literal(w, tool_name(tool)));
    AG_TRY(put(w, is_python ? "\"(\" %python " : "\"{\" %braces("));
    if (!is_python) {
        AG_TRY(put_literal(w, w->c->quote));
        AG_TRY(put(w, ", "));
        AG_TRY(put_stop_regex(w, "", w->c->quote));
        AG_TRY(put(w, ") "));
    }
    AG_TRY(put_parameters(w, tool));
    return put(w, is_python ? "\")\" " : "\"}\" ");
}

/* Writes a call of the tool, without what opens and closes it. */
static ag_status put_call(writer *w, const json_t *tool) {
    const char *name = tool_name(tool);
    if (w->c->kind != AG_CALLS_JSON && name[ag_call_name_len(name, strlen(name))]) {
        return AG_FAIL(w->err, UNSUPPORTED,
                       "tool \"%.80s\": cannot constrain a call: the name needs quotes", name);
    }
    switch (w->c->kind) {
    case AG_CALLS_JSON:
        return put_object(w, tool);
    case AG_CALLS_NAMED:
    case AG_CALLS_HARMONY:
        return put_named(w, tool);
    case AG_CALLS_TAGGED:
        return put_tagged(w, tool);
    case AG_CALLS_PYTHON:
    case AG_CALLS_BRACES:
        break;
    }
    return put_code(w, tool);
}

/* ---- sections ---- */

/* Returns whether the answer begins with the first call, without a delimiter. */
static bool starts_bare(const ag_chat_format *f) {
    return f->calls.is_bare && f->has_detected_calls;
}

/* Returns whether list_open follows section_open. Then call_open is inside the list. */
static bool opens_in_list(const ag_call_format *c) {
    return c->is_parallel && c->list_open && c->list_open[0];
}

bool ag_chat_format_repeats_calls(const ag_chat_format *f) {
    const ag_call_format *c = &f->calls;
    return c->is_parallel && c->kind != AG_CALLS_HARMONY && (!c->header_close || c->header_between);
}

static ag_status append_if_set(ag_text *out, const char *s, ag_error *err) {
    return s ? ag_text_append_string(out, s, err) : AG_OK;
}

ag_status ag_call_opening(const ag_chat_format *f, ag_text *out, ag_error *err) {
    const ag_call_format *c = &f->calls;
    if (c->kind == AG_CALLS_HARMONY) {
        return append_if_set(out, "<|channel|>commentary to=functions.", err);
    }
    if (starts_bare(f)) return AG_OK;
    if (c->header_close) return append_if_set(out, c->header_open, err);
    AG_TRY(append_if_set(out, c->section_open, err));
    if (opens_in_list(c)) return AG_OK;
    const size_t begin = out->len;
    AG_TRY(append_if_set(out, c->call_open, err));
    for (size_t i = begin; i < out->len; i++) {
        if (ag_is_call_count(out->data[i])) out->data[i] += '0' - AG_CALL_COUNT_0;
    }
    return AG_OK;
}

/* Writes the tool's name in the header of a message, and what opens the call after it. */
static ag_status put_header(writer *w, const json_t *tool) {
    if (!w->c->header_close) return AG_OK;
    AG_TRY(put_literal(w, tool_name(tool)));
    AG_TRY(put_literal(w, w->c->header_close));
    AG_TRY(put_literal(w, w->c->section_open));
    return put_literal(w, w->c->call_open);
}

static ag_status put_calls(writer *w, const json_t *tools) {
    const json_t *tool;
    size_t i;
    AG_TRY(put(w, "call ::= ("));
    json_array_foreach(tools, i, tool) {
        AG_TRY(put(w, i ? "| " : ""));
        AG_TRY(put_header(w, tool));
        AG_TRY(put_call(w, tool));
    }
    AG_TRY(put(w, ") "));
    if (!starts_bare(w->f)) AG_TRY(put_closing(w, w->c->call_close));
    return put(w, "\n");
}

ag_status ag_call_grammar(const ag_chat_format *f, const json_t *tools, bool several, ag_text *out,
                          ag_error *err) {
    writer w = {.f = f, .c = &f->calls, .out = out, .err = err};
    const ag_call_format *c = w.c;
    const bool is_bare_call = starts_bare(f);
    AG_TRY(put(&w, "root ::= "));
    AG_TRY(put_literal(&w, c->list_open));
    if (opens_in_list(c) && !is_bare_call) AG_TRY(put_literal(&w, c->call_open));
    AG_TRY(put(&w, "call "));
    if (several && ag_chat_format_repeats_calls(f)) {
        AG_TRY(put(&w, "("));
        AG_TRY(put_literal(&w, c->header_close ? c->header_between : c->between));
        if (!is_bare_call && !c->header_close) AG_TRY(put_literal(&w, c->call_open));
        AG_TRY(put(&w, "call)* "));
    }
    AG_TRY(put_closing(&w, c->list_close));
    if (!is_bare_call) AG_TRY(put_closing(&w, c->section_close));
    AG_TRY(put(&w, "\n"));
    return put_calls(&w, tools);
}
