/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/document.h"

#include "constrain/interrupts.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/hex.h"
#include "formats/json.h"
#include "text/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPARED_MAX = 1 << 26 };

void ag_schema_doc_free(ag_schema_doc *d) {
    json_decref(d->root);
    json_decref(d->constants);
    ag_free(d->schemas);
    ag_free(d->slots);
    ag_free(d->anchors);
    *d = (ag_schema_doc){0};
}

/* ---- numbers of schemas ---- */

static size_t schema_slot(const ag_schema_doc *d, const json_t *value) {
    size_t at = ((uintptr_t)value >> 4) * 0x9E3779B97F4A7C15u >> 20 & (d->n_slots - 1);
    while (d->slots[at] && d->schemas[d->slots[at] - 1].value != value) {
        at = (at + 1) & (d->n_slots - 1);
    }
    return at;
}

static ag_status grow_schema_slots(ag_schema_doc *d, ag_error *err) {
    const size_t n = d->n_slots ? 2 * d->n_slots : 64;
    uint32_t *slots = ag_calloc(n, sizeof *slots);
    if (!slots) return AG_FAIL(err, NOMEM, "schema of %zu parts", d->n);
    ag_free(d->slots);
    d->slots = slots;
    d->n_slots = n;
    for (uint32_t i = 0; i < d->n; i++) d->slots[schema_slot(d, d->schemas[i].value)] = i + 1;
    return AG_OK;
}

static const char *id_of(const json_t *value) {
    const char *id = json_string_value(json_object_get(value, "$id"));
    return id ? id : json_string_value(json_object_get(value, "id"));
}

static ag_status add_schema(ag_schema_doc *d, ag_schema_node at, uint32_t *id, ag_error *err) {
    AG_TRY(ag_compile_steps(1, err));
    if (2 * (d->n + 1) > d->n_slots) AG_TRY(grow_schema_slots(d, err));
    const size_t slot = schema_slot(d, at.value);
    /* Jansson has one value each for true and false, so their first path stands for all. */
    if (d->slots[slot]) {
        *id = d->slots[slot] - 1;
        return AG_OK;
    }
    AG_TRY(AG_GROW(d->schemas, &d->cap, d->n + 1, err));
    const char *own = id_of(at.value);
    if (own && own[0] != '#') at.resource = at.value;
    d->schemas[d->n] = at;
    d->slots[slot] = (uint32_t)d->n + 1;
    *id = (uint32_t)d->n++;
    return AG_OK;
}

ag_status ag_schema_doc_child(ag_schema_doc *d, uint32_t parent, const char *key, const char *sub,
                              size_t index, const json_t *value, uint32_t *id, ag_error *err) {
    char path[AG_SCHEMA_PATH_BYTES];
    if (!json_is_object(value) && !json_is_boolean(value)) {
        return AG_FAIL(err, FORMAT, "schema: %s: not a schema; expected an object, true or false",
                       ag_schema_doc_path(d, parent, key, path));
    }
    const ag_schema_node at = {value, d->schemas[parent].resource, parent, key, sub, index};
    return add_schema(d, at, id, err);
}

ag_status ag_schema_doc_const(ag_schema_doc *d, uint32_t parent, const char *key,
                              const json_t *value, uint32_t *id, ag_error *err) {
    if (!d->constants) d->constants = json_array();
    json_t *schema = json_object();
    json_t *shared = (json_t *)(uintptr_t)value; /* counted, not changed */
    if (!d->constants || !schema || json_object_set(schema, "const", shared) ||
        json_array_append(d->constants, schema)) {
        json_decref(schema);
        return AG_FAIL(err, NOMEM, "schema");
    }
    json_decref(schema); /* the array owns it */
    const ag_schema_node at = {schema, d->schemas[parent].resource, parent, key, NULL, SIZE_MAX};
    return add_schema(d, at, id, err);
}

/* ---- paths ---- */

/* Appends what fits. */
static void put_text(char *out, size_t *n, const char *s) {
    for (; *s && *n + 1 < AG_SCHEMA_PATH_BYTES; s++) out[(*n)++] = *s;
    out[*n] = '\0';
}

static void put_key(char *out, size_t *n, const char *key) {
    put_text(out, n, "/");
    for (; *key; key++) {
        const char one[2] = {*key, '\0'};
        put_text(out, n, *key == '~' ? "~0" : *key == '/' ? "~1" : one);
    }
}

static void put_path(const ag_schema_doc *d, uint32_t id, char *out, size_t *n, int depth) {
    const ag_schema_node *at = &d->schemas[id];
    if (!id || !at->key) return;
    if (depth < 64) put_path(d, at->parent, out, n, depth + 1);
    if (*at->key) put_key(out, n, at->key);
    if (at->sub) put_key(out, n, at->sub);
    if (at->index != SIZE_MAX) {
        char digits[24];
        snprintf(digits, sizeof digits, "%zu", at->index);
        put_key(out, n, digits);
    }
}

const char *ag_schema_doc_path(const ag_schema_doc *d, uint32_t id, const char *keyword,
                               char out[AG_SCHEMA_PATH_BYTES]) {
    size_t n = 0;
    put_text(out, &n, "#");
    put_path(d, id, out, &n, 0);
    if (keyword && *keyword) put_key(out, &n, keyword);
    return out;
}

/* ---- references ---- */

static ag_status add_anchor(ag_schema_doc *d, ag_schema_anchor a, ag_error *err) {
    AG_TRY(AG_GROW(d->anchors, &d->anchors_cap, d->n_anchors + 1, err));
    d->anchors[d->n_anchors++] = a;
    return AG_OK;
}

/* Lists the identifiers in the document. Its JSON is at most 64 levels deep. */
static ag_status find_anchors(ag_schema_doc *d, const json_t *v, const json_t *resource,
                              ag_error *err) {
    AG_TRY(ag_compile_steps(1, err));
    const char *id = id_of(v);
    if (id && id[0] == '#') {
        AG_TRY(add_anchor(d, (ag_schema_anchor){v, resource, id + 1, false}, err));
    } else if (id) {
        resource = v;
        AG_TRY(add_anchor(d, (ag_schema_anchor){v, v, id, true}, err));
    }
    const char *anchor = json_string_value(json_object_get(v, "$anchor"));
    if (!anchor) anchor = json_string_value(json_object_get(v, "$dynamicAnchor"));
    if (anchor) AG_TRY(add_anchor(d, (ag_schema_anchor){v, resource, anchor, false}, err));
    const char *key;
    const json_t *child;
    size_t i;
    if (json_is_object(v)) {
        json_t *object = (json_t *)(uintptr_t)v; /* iterating changes nothing */
        json_t *member;
        json_object_foreach(object, key, member) {
            if (strcmp(key, "enum") && strcmp(key, "const")) {
                AG_TRY(find_anchors(d, member, resource, err));
            }
        }
    }
    json_array_foreach(v, i, child) AG_TRY(find_anchors(d, child, resource, err));
    return AG_OK;
}

/* Reads one segment of a JSON pointer and decodes its ~ and % escapes. Returns the position after
 * it. */
static const char *read_segment(const char *s, char *out, size_t size) {
    size_t n = 0;
    for (; *s && *s != '/' && n + 1 < size; s++) {
        char c = *s;
        if (c == '~' && (s[1] == '0' || s[1] == '1')) {
            c = *++s == '0' ? '~' : '/';
        } else if (c == '%' && s[1] && ag_hex_digit(s[1]) >= 0 && ag_hex_digit(s[2]) >= 0) {
            c = (char)(ag_hex_digit(s[1]) * 16 + ag_hex_digit(s[2]));
            s += 2;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return s;
}

/* Returns the value at a JSON pointer, or NULL. */
static const json_t *follow_pointer(const json_t *v, const char *pointer) {
    char segment[512];
    while (v && *pointer == '/') {
        pointer = read_segment(pointer + 1, segment, sizeof segment);
        if (json_is_array(v)) {
            char *end;
            const unsigned long i = strtoul(segment, &end, 10);
            v = *segment && !*end ? json_array_get(v, i) : NULL;
        } else {
            v = json_object_get(v, segment);
        }
    }
    return *pointer ? NULL : v;
}

static bool is_resource(const ag_schema_anchor *a, const char *uri, size_t n) {
    const size_t len = strcspn(a->name, "#");
    if (!a->is_id || len < n || memcmp(a->name + len - n, uri, n)) return false;
    return len == n || a->name[len - n - 1] == '/';
}

static const json_t *find_target(const ag_schema_doc *d, const json_t *resource, const char *ref) {
    const size_t n = strcspn(ref, "#");
    const char *fragment = ref[n] ? ref + n + 1 : "";
    if (n) {
        const json_t *found = NULL;
        for (size_t i = 0; i < d->n_anchors && !found; i++) {
            if (is_resource(&d->anchors[i], ref, n)) found = d->anchors[i].value;
        }
        if (!found) return NULL;
        resource = found;
    }
    if (!*fragment) return resource;
    if (*fragment == '/') {
        const json_t *v = follow_pointer(resource, fragment);
        return v ? v : follow_pointer(d->root, fragment);
    }
    for (size_t i = 0; i < d->n_anchors; i++) {
        const ag_schema_anchor *a = &d->anchors[i];
        if (!a->is_id && a->resource == resource && !strcmp(a->name, fragment)) return a->value;
    }
    return NULL;
}

ag_status ag_schema_doc_ref(ag_schema_doc *d, uint32_t at, const char *ref, uint32_t *id,
                            ag_error *err) {
    char path[AG_SCHEMA_PATH_BYTES];
    AG_TRY(ag_compile_steps(1 + d->n_anchors / 16, err));
    d->compared += d->n_anchors;
    if (d->compared > COMPARED_MAX) {
        return AG_FAIL(err, LIMIT, "schema: %s: too many references among %zu names",
                       ag_schema_doc_path(d, at, "$ref", path), d->n_anchors);
    }
    const json_t *target = find_target(d, d->schemas[at].resource, ref);
    if (!target) {
        return AG_FAIL(err, UNSUPPORTED, "schema: %s: \"%.100s\" is not in the document",
                       ag_schema_doc_path(d, at, "$ref", path), ref);
    }
    if (!json_is_object(target) && !json_is_boolean(target)) {
        return AG_FAIL(err, FORMAT, "schema: %s: \"%.100s\" is not a schema",
                       ag_schema_doc_path(d, at, "$ref", path), ref);
    }
    const ag_schema_node to = {target, d->schemas[at].resource, at, "$ref", NULL, SIZE_MAX};
    return add_schema(d, to, id, err);
}

/* ---- loading ---- */

static bool is_old_draft(const json_t *root) {
    static const char *const old[] = {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"};
    const char *uri = json_string_value(json_object_get(root, "$schema"));
    for (size_t i = 0; uri && i < sizeof old / sizeof old[0]; i++) {
        if (strstr(uri, old[i])) return true;
    }
    return false;
}

static ag_status parse_document(const char *text, size_t n, json_t **out, ag_error *err) {
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    while (n && strchr(" \t\r\n", *text)) text++, n--;
    const bool is_true = n == 4 && !memcmp(text, "true", 4);
    if (is_true || (n == 5 && !memcmp(text, "false", 5))) {
        *out = json_boolean(is_true);
        return AG_OK;
    }
    return ag_json_parse(text, n, "schema", out, err);
}

ag_status ag_schema_doc_load(ag_schema_doc *d, const char *text, size_t n, ag_error *err) {
    *d = (ag_schema_doc){0};
    AG_TRY(parse_document(text, n, &d->root, err));
    d->old_ref = is_old_draft(d->root);
    uint32_t id;
    AG_TRY(find_anchors(d, d->root, d->root, err));
    const ag_schema_node root = {d->root, d->root, 0, NULL, NULL, SIZE_MAX};
    return add_schema(d, root, &id, err);
}
