/* SPDX-License-Identifier: Apache-2.0 */
/* Schema document: the sub-schemas of a JSON schema by number, their paths and their references. */
#ifndef AG_CONSTRAIN_SCHEMA_DOCUMENT_H
#define AG_CONSTRAIN_SCHEMA_DOCUMENT_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { AG_SCHEMA_PATH_BYTES = 200 };

typedef struct ag_schema_node {
    const json_t *value;
    const json_t *resource; /* schema that "#" refers to */
    uint32_t parent;        /* number of the schema that contains it, for messages */
    const char *key, *sub;  /* borrowed from the document; sub: a member of `key`, or NULL */
    size_t index;           /* an element of `key`; SIZE_MAX: none */
} ag_schema_node;

typedef struct ag_schema_anchor {
    const json_t *value;
    const json_t *resource; /* in which the name is defined */
    const char *name;
    bool is_id; /* $id; else $anchor or an id that begins with # */
} ag_schema_anchor;

typedef struct ag_schema_doc {
    json_t *root;      /* owned */
    json_t *constants; /* owned: array of schemas made by ag_schema_doc_const() */
    bool old_ref;      /* up to draft 7: the siblings of $ref are ignored */
    ag_schema_node *schemas;
    size_t n, cap;
    uint32_t *slots; /* number + 1 by hash of `value`; 0: empty */
    size_t n_slots;
    ag_schema_anchor *anchors;
    size_t n_anchors, anchors_cap;
    size_t compared; /* comparisons of anchors and references so far */
} ag_schema_doc;

/* Parses a schema. Schema 0 is the whole document. Release *d with ag_schema_doc_free(), after a
 * failure too. */
ag_status ag_schema_doc_load(ag_schema_doc *d, const char *text, size_t n, ag_error *err);
void ag_schema_doc_free(ag_schema_doc *d);

/* Returns the number of the schema `value` in *id. It is schemas[parent].value[key], or the member
 * `sub` or the element `index` of that. AG_FORMAT if it is not a schema. */
ag_status ag_schema_doc_child(ag_schema_doc *d, uint32_t parent, const char *key, const char *sub,
                              size_t index, const json_t *value, uint32_t *id, ag_error *err);
/* Makes a schema {"const": value} for a value inside the keyword `key` of schemas[parent]. */
ag_status ag_schema_doc_const(ag_schema_doc *d, uint32_t parent, const char *key,
                              const json_t *value, uint32_t *id, ag_error *err);
/* Resolves "$ref" of schemas[at]. AG_UNSUPPORTED if the target is not in the document, AG_FORMAT if
 * it is not a schema, AG_LIMIT if there are too many references times anchors. */
ag_status ag_schema_doc_ref(ag_schema_doc *d, uint32_t at, const char *ref, uint32_t *id,
                            ag_error *err);

/* Writes the JSON pointer of a schema's keyword (NULL: of the schema) for messages, and returns
 * out. Cuts it off after AG_SCHEMA_PATH_BYTES - 1 bytes. */
const char *ag_schema_doc_path(const ag_schema_doc *d, uint32_t id, const char *keyword,
                               char out[AG_SCHEMA_PATH_BYTES]);

#endif
