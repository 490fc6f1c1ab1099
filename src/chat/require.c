/* SPDX-License-Identifier: Apache-2.0 */
/* A call that is asked for: how it begins, and the schema of what is left of it. */
#include "chat/conversation.h"
#include "chat/values.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

typedef struct required {
    const ag_chat *c;
    const ag_call_format *f;
    ag_text begin;  /* text behind the prompt */
    json_t *tool;   /* borrowed; the only one that may be called, or NULL */
    bool is_plain;  /* JSON alone, since the format is another */
    json_t *schema; /* owned */
    ag_error *err;
} required;

static json_t *function_of(json_t *tool) {
    json_t *f = json_object_get(tool, "function");
    return f ? f : tool;
}

static const char *name_of(json_t *tool) {
    return json_string_value(json_object_get(function_of(tool), "name"));
}

/* ---- schemas ---- */

/* References into a schema that now stands at `place` of another. */
static bool move_references(json_t *v, const char *place) {
    size_t i;
    const char *key;
    json_t *member;
    json_array_foreach(v, i, member) {
        if (!move_references(member, place)) return false;
    }
    json_object_foreach(v, key, member) {
        const char *ref = json_string_value(member);
        if (!strcmp(key, "$ref") && ref && ref[0] == '#' && (ref[1] == '/' || !ref[1])) {
            json_t *moved = json_sprintf("#%s%s", place, ref + 1);
            if (json_object_set_new(v, "$ref", moved) != 0) return false;
        } else if (!move_references(member, place)) {
            return false;
        }
    }
    return true;
}

/* The schema of a tool's arguments, to stand at `place`. */
static json_t *parameters_of(json_t *tool, const char *place) {
    const json_t *own = json_object_get(function_of(tool), "parameters");
    json_t *schema = json_is_object(own) ? json_deep_copy(own) : json_object();
    if (schema && move_references(schema, place) &&
        (json_object_get(schema, "type") ||
         json_object_set_new(schema, "type", json_string("object")) == 0))
        return schema;
    json_decref(schema);
    return NULL;
}

static json_t *call_schema(const required *r, json_t *tool, const char *place) {
    char arguments[160];
    const char *name_key = r->f->name_key, *key = r->f->arguments_key;
    snprintf(arguments, sizeof arguments, "%s/properties/%s", place, key);
    return json_pack("{s:s, s:{s:{s:s}, s:o}, s:[s, s], s:b}", "type", "object", "properties",
                     name_key, "const", name_of(tool), key, parameters_of(tool, arguments),
                     "required", name_key, key, "additionalProperties", 0);
}

static json_t *any_call_schema(const required *r) {
    json_t *list = json_array(), *tool;
    size_t i;
    json_array_foreach(r->c->tools, i, tool) {
        char place[32];
        snprintf(place, sizeof place, "/anyOf/%zu", i);
        if (json_array_append_new(list, call_schema(r, tool, place)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return json_pack("{s:o}", "anyOf", list);
}

/* ---- how it begins ---- */

static ag_status add(required *r, const char *s) {
    return ag_text_append(&r->begin, s, strlen(s), r->err);
}

/* A reasoning that the prompt has opened is over. */
static ag_status close_reasoning(required *r) {
    if (!r->c->is_open) return AG_OK;
    AG_TRY(add(r, r->c->format->reasoning_close));
    return add(r, "\n\n");
}

static ag_status begin_named(required *r) {
    const ag_call_format *f = r->f;
    if (f->kind == AG_CALLS_HARMONY) {
        AG_TRY(add(r, "<|channel|>commentary to=functions."));
        AG_TRY(add(r, name_of(r->tool)));
        AG_TRY(add(r, " <|constrain|>json<|message|>"));
    } else {
        AG_TRY(add(r, f->section_open));
        AG_TRY(add(r, f->call_open));
        AG_TRY(add(r, name_of(r->tool)));
        AG_TRY(add(r, f->id_is_name ? ":0" : ""));
        AG_TRY(add(r, f->name_end));
    }
    r->schema = parameters_of(r->tool, "");
    return AG_OK;
}

static ag_status begin_json(required *r) {
    /* What is bare has no marks that stand before every call. */
    if (!r->is_plain && !r->f->bare) {
        AG_TRY(add(r, r->f->section_open));
        AG_TRY(add(r, r->f->call_open));
    }
    r->schema = r->tool ? call_schema(r, r->tool, "") : any_call_schema(r);
    return AG_OK;
}

static ag_status begin(required *r) {
    const ag_call_kind kind = r->f->kind;
    const bool is_named = kind == AG_CALLS_NAMED || kind == AG_CALLS_HARMONY;
    if (kind != AG_CALLS_HARMONY) AG_TRY(close_reasoning(r));
    r->is_plain = kind != AG_CALLS_JSON && !(is_named && r->tool);
    if (r->is_plain) r->f = &r->c->format->plain_calls;
    AG_TRY(is_named && r->tool ? begin_named(r) : begin_json(r));
    return r->schema ? AG_OK : AG_FAIL(r->err, NOMEM, "the schema of a call");
}

static ag_status find_tool(required *r, const char *name) {
    json_t *tool;
    size_t i;
    if (!r->c->tools) return AG_FAIL(r->err, NOT_FOUND, "a call of a tool: there are no tools");
    if (json_array_size(r->c->tools) == 1) r->tool = json_array_get(r->c->tools, 0);
    if (!name) return AG_OK;
    r->tool = NULL;
    json_array_foreach(r->c->tools, i, tool) {
        if (!strcmp(name, name_of(tool))) r->tool = tool;
    }
    if (r->tool) return AG_OK;
    return AG_FAIL(r->err, NOT_FOUND, "a call of a tool: there is no tool \"%.80s\"", name);
}

ag_status ag_chat_require_call(ag_chat *c, const char *name, ag_ids *ids, ag_text *schema,
                               ag_error *err) {
    required r = {.c = c, .f = &c->format->calls, .err = err};
    const size_t n_ids = ids->n;
    ag_status st = find_tool(&r, name);
    if (st == AG_OK) st = begin(&r);
    if (st == AG_OK && r.begin.len) {
        st = c->format->tokenizer
                 ? ag_tokenizer_encode(c->format->tokenizer, r.begin.data, r.begin.len,
                                       AG_ENCODE_PARSE_SPECIAL, ids, err)
                 : AG_FAIL(err, INVALID, "ids of a chat format without a tokenizer");
    }
    if (st == AG_OK) st = ag_value_append(r.schema, schema, err);
    if (st == AG_OK) {
        ag_text_free(&c->begun);
        c->begun = r.begin;
        c->is_begun_plain = r.is_plain;
    } else {
        ids->n = n_ids;
        ag_text_free(&r.begin);
    }
    json_decref(r.schema);
    return st;
}
