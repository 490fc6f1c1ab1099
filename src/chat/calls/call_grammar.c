/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/calls/call_grammar.h"

#include "chat/calls/call_trigger.h"
#include "chat/detect/sentinels.h"
#include "chat/json_scan.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "chat/parse/parser.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

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
static ag_status parameters_of(ag_call_writer *w, const json_t *tool, const char *path,
                               json_t **out) {
    const json_t *own = json_object_get(ag_chat_function(tool), "parameters");
    const char *type = json_string_value(json_object_get(own, "type"));
    *out = NULL;
    if (json_object_get(w->loose, tool_name(tool))) own = NULL;
    else if (type && strcmp(type, "object") != 0) {
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
static ag_status call_schema(ag_call_writer *w, json_t *sample, const json_t *tool,
                             const char *path, json_t **out) {
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

static ag_status put_schema(ag_call_writer *w, json_t *schema) {
    const ag_status st = ag_json_text_append(schema, w->out, w->err);
    json_decref(schema);
    return st == AG_OK ? ag_call_put(w, " ") : st;
}

static ag_status put_parameters(ag_call_writer *w, const json_t *tool) {
    json_t *schema;
    AG_TRY(parameters_of(w, tool, "", &schema));
    return put_schema(w, schema);
}

/* ---- calls ---- */

static ag_status put_object(ag_call_writer *w, const json_t *tool) {
    json_t *sample = json_loads(w->c->object, 0, NULL), *schema;
    if (!sample) return AG_FAIL(w->err, NOMEM, "schema of a tool call");
    const ag_status st = call_schema(w, sample, tool, "", &schema);
    json_decref(sample);
    if (st != AG_OK) return st;
    AG_TRY(ag_call_put(w, "%json "));
    return put_schema(w, schema);
}

static ag_status put_named(ag_call_writer *w, const json_t *tool) {
    AG_TRY(ag_call_put_literal(w, tool_name(tool)));
    if (w->c->has_index) AG_TRY(ag_call_put(w, "\":\" [0-9]{1,4} "));
    if (w->c->id_open) {
        AG_TRY(ag_call_put_literal(w, w->c->id_open));
        AG_TRY(ag_call_put(w, "[a-zA-Z0-9]{9} "));
    }
    if (w->c->kind == AG_CALLS_HARMONY && w->is_free) AG_TRY(ag_call_put(w, "header "));
    else if (w->c->kind == AG_CALLS_HARMONY)
        AG_TRY(ag_call_put_literal(w, " <|constrain|>json<|message|>"));
    else AG_TRY(ag_call_put_literal(w, w->c->name_end));
    AG_TRY(ag_call_put(w, "%json "));
    return put_parameters(w, tool);
}

static ag_status put_tagged(ag_call_writer *w, const json_t *tool) {
    const ag_call_format *c = w->c;
    const char *const delimiters[] = {
        c->param_open, c->param_text,  c->param_open_json ? c->param_open_json : c->param_open,
        c->param_json, c->param_close, c->param_between ? c->param_between : "",
    };
    AG_TRY(ag_call_put_literal(w, tool_name(tool)));
    AG_TRY(ag_call_put_literal(w, c->name_end));
    AG_TRY(ag_call_put(w, "%tags("));
    for (size_t i = 0; i < sizeof delimiters / sizeof *delimiters; i++) {
        AG_TRY(ag_call_put_literal(w, delimiters[i]));
        AG_TRY(ag_call_put(w, ", "));
    }
    /* The parser reads a value that begins with <![CDATA[ as CDATA. */
    AG_TRY(ag_call_put_stop_regex(w, "^<!\\[CDATA\\[|", c->param_close));
    AG_TRY(ag_call_put(w, ") "));
    return put_parameters(w, tool);
}

static ag_status put_code(ag_call_writer *w, const json_t *tool) {
    const bool is_python = w->c->kind == AG_CALLS_PYTHON;
    AG_TRY(ag_call_put_literal(w, tool_name(tool)));
    AG_TRY(ag_call_put(w, is_python ? "\"(\" %python " : "\"{\" %braces("));
    if (!is_python) {
        AG_TRY(ag_call_put_literal(w, w->c->quote));
        AG_TRY(ag_call_put(w, ", "));
        AG_TRY(ag_call_put_stop_regex(w, "", w->c->quote));
        AG_TRY(ag_call_put(w, ") "));
    }
    AG_TRY(put_parameters(w, tool));
    return ag_call_put(w, is_python ? "\")\" " : "\"}\" ");
}

/* Writes a call of the tool, without what opens and closes it. */
static ag_status put_call(ag_call_writer *w, const json_t *tool) {
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
static ag_status put_header(ag_call_writer *w, const json_t *tool) {
    if (!w->c->header_close || w->is_free) return AG_OK;
    AG_TRY(ag_call_put_literal(w, tool_name(tool)));
    AG_TRY(ag_call_put_literal(w, w->c->header_close));
    AG_TRY(ag_call_put_literal(w, w->c->section_open));
    return ag_call_put_literal(w, w->c->call_open);
}

/* Writes the rules `call` and `tool`, a call without what closes it. */
static ag_status put_calls(ag_call_writer *w, const json_t *tools) {
    const json_t *tool;
    size_t i;
    AG_TRY(ag_call_put(w, "call ::= tool "));
    if (!starts_bare(w->f)) AG_TRY(ag_call_put_closing(w, w->c->call_close));
    AG_TRY(ag_call_put(w, "\ntool ::= "));
    json_array_foreach(tools, i, tool) {
        AG_TRY(ag_call_put(w, i ? "| " : ""));
        AG_TRY(put_header(w, tool));
        AG_TRY(put_call(w, tool));
    }
    return ag_call_put(w, "\n");
}

/* Writes all calls of a section after its opening, and what closes it. */
static ag_status put_section(ag_call_writer *w, bool several) {
    const ag_call_format *c = w->c;
    const bool is_bare_call = starts_bare(w->f), has_header = c->header_close && !w->is_free;
    AG_TRY(ag_call_put_literal(w, c->list_open));
    if (opens_in_list(c) && !is_bare_call) AG_TRY(ag_call_put_literal(w, c->call_open));
    AG_TRY(ag_call_put(w, "call "));
    if (several && ag_chat_format_repeats_calls(w->f)) {
        AG_TRY(ag_call_put(w, "("));
        AG_TRY(ag_call_put_literal(w, has_header ? c->header_between : c->between));
        if (!is_bare_call && !has_header) AG_TRY(ag_call_put_literal(w, c->call_open));
        AG_TRY(ag_call_put(w, "call)* "));
    }
    AG_TRY(ag_call_put_closing(w, c->list_close));
    return is_bare_call ? AG_OK : ag_call_put_closing(w, c->section_close);
}

ag_status ag_call_grammar(const ag_chat_format *f, const json_t *tools, bool several, ag_text *out,
                          ag_error *err) {
    ag_call_writer w = {.f = f, .c = &f->calls, .out = out, .err = err};
    AG_TRY(ag_call_put(&w, "root ::= "));
    AG_TRY(put_section(&w, several));
    AG_TRY(ag_call_put(&w, "\n"));
    return put_calls(&w, tools);
}

/* ---- answers that need not call ---- */

/* Writes a text that opens calls, without white space before it: with special tokens by their ids,
 * or spelled. */
static ag_status put_opening(ag_call_writer *w, const char *s, size_t n) {
    const size_t space = ag_json_space_len(s, n);
    AG_TRY(ag_call_put(w, "("));
    AG_TRY(ag_call_put_delimiter(w, s + space, n - space));
    AG_TRY(ag_call_put(w, "| "));
    AG_TRY(ag_call_put_quoted(w, s + space, n - space));
    return ag_call_put(w, ") ");
}

static bool is_blank(const char *s) { return !s || s[ag_json_space_len(s, strlen(s))] == '\0'; }

/* Writes the end of a header: the type of the content, which ends a group, and the mark. */
static ag_status put_harmony_type(ag_call_writer *w) {
    AG_TRY(ag_call_put_literal(w, "<|constrain|>"));
    AG_TRY(ag_call_put(w, "\"json\")? "));
    return ag_call_put_literal(w, "<|message|>");
}

/* Writes the rule `header`: the header of a call after the tool's name. */
static ag_status put_harmony_header(ag_call_writer *w) {
    AG_TRY(ag_call_put(w, "header ::= ("));
    AG_TRY(ag_call_put_literal(w, "<|channel|>"));
    AG_TRY(ag_call_put(w, "(\"commentary\" | \"analysis\"))? (\" json\" | \" \"? "));
    AG_TRY(put_harmony_type(w));
    return ag_call_put(w, "\n");
}

static ag_status put_harmony_root(ag_call_writer *w) {
    const char *const *opens;
    const size_t n = ag_call_harmony_opens(&opens);
    AG_TRY(ag_call_put(w, "root ::= ("));
    for (size_t i = 0; i < n; i++) {
        AG_TRY(put_opening(w, opens[i], strlen(opens[i])));
        AG_TRY(ag_call_put(w, i + 1 < n ? "| " : ") call\n"));
    }
    return put_harmony_header(w);
}

/* Writes the rule `root`: all that a trigger of ag_call_trigger() begins. */
static ag_status put_free_root(ag_call_writer *w, bool several) {
    const ag_call_format *c = w->c;
    const bool has_section = !is_blank(c->section_open), has_call = !is_blank(c->call_open);
    ag_text opening = {0};
    if (c->kind == AG_CALLS_HARMONY) return put_harmony_root(w);
    AG_TRY(ag_call_put(w, "root ::= "));
    if (has_section || has_call) {
        const bool opens_call = !opens_in_list(c) && !starts_bare(w->f);
        ag_status st = ag_text_append_string(&opening, c->section_open, w->err);
        if (st == AG_OK && opens_call) st = ag_text_append_string(&opening, c->call_open, w->err);
        if (st == AG_OK && opening.len) st = put_opening(w, opening.data, opening.len);
        ag_text_free(&opening);
        AG_TRY(st);
        AG_TRY(put_section(w, several));
    }
    if (has_section && has_call) {
        AG_TRY(ag_call_put(w, "| "));
        AG_TRY(put_opening(w, c->call_open, strlen(c->call_open)));
        AG_TRY(ag_call_put(w, "call "));
    }
    const bool is_list = c->kind == AG_CALLS_PYTHON && starts_bare(w->f);
    if (c->kind != AG_CALLS_JSON && !is_list) return ag_call_put(w, "\n");
    if (has_section || has_call) AG_TRY(ag_call_put(w, "| "));
    AG_TRY(is_list ? put_section(w, several) : ag_call_put(w, "tool "));
    return ag_call_put(w, "\n");
}

ag_status ag_call_free_grammar(const ag_chat_format *f, const json_t *tools,
                               const ag_call_free_params *p, ag_text *out, ag_error *err) {
    ag_call_writer w = {
        .f = f, .c = &f->calls, .loose = p->loose, .is_free = true, .out = out, .err = err};
    AG_TRY(ag_call_trigger(&w, tools, starts_bare(f), p->in_reasoning));
    AG_TRY(put_free_root(&w, p->several));
    return put_calls(&w, tools);
}

/* ---- answers with constrained content ---- */

/* Writes the rule `thought`, a message of reasoning and the start of the next message. No text has
 * "<|", which could spell a delimiter. */
static ag_status put_thought(ag_call_writer *w) {
    AG_TRY(ag_call_put(w, "thought ::= "));
    AG_TRY(ag_call_put_literal(w, "<|channel|>analysis<|message|>"));
    AG_TRY(ag_call_put(w, "([^<] | \"<\"+ [^<|])* \"<\"* "));
    AG_TRY(ag_call_put_literal(w, "<|end|><|start|>assistant"));
    return ag_call_put(w, "\n");
}

/* Writes the rule `final`, a message in the channel final. */
static ag_status put_final(ag_call_writer *w, const char *content) {
    AG_TRY(ag_call_put(w, "final ::= "));
    AG_TRY(ag_call_put_literal(w, "<|channel|>final"));
    AG_TRY(ag_call_put(w, "(\" \"? "));
    AG_TRY(put_harmony_type(w));
    AG_TRY(ag_call_put(w, content));
    return ag_call_put(w, "\n");
}

ag_status ag_call_content_grammar(const ag_chat_format *f, const json_t *tools, const json_t *loose,
                                  const char *content, ag_text *out, ag_error *err) {
    ag_call_writer w = {
        .f = f, .c = &f->calls, .loose = loose, .is_free = true, .out = out, .err = err};
    AG_TRY(ag_call_put(&w, "root ::= thought* "));
    AG_TRY(ag_call_put(&w, tools ? "(final | open call)\n" : "final\n"));
    AG_TRY(put_thought(&w));
    AG_TRY(put_final(&w, content));
    if (!tools) return AG_OK;
    AG_TRY(ag_call_put(&w, "open ::= ("));
    AG_TRY(ag_call_put_literal(&w, "<|channel|>"));
    AG_TRY(ag_call_put(&w, "(\"commentary\" | \"analysis\"))? \" to=functions.\"\n"));
    AG_TRY(put_harmony_header(&w));
    return put_calls(&w, tools);
}
