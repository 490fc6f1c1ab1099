/* SPDX-License-Identifier: Apache-2.0 */
/* The document of a schema: its sub-schemas by number, where they stand, what references mean. */
#ifndef AG_CONSTRAIN_SCHEMA_DOCUMENT_H
#define AG_CONSTRAIN_SCHEMA_DOCUMENT_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { AG_SCHEMA_PATH_BYTES = 200 };

typedef struct ag_schema_node {
    const json_t *value;
    const json_t *resource; /* what "#" means there */
    uint32_t parent;        /* where it stands, for messages */
    const char *key, *sub;  /* borrowed from the document; sub NULL, or a key or ... */
    size_t index;           /* ... a place in an array; SIZE_MAX: none */
} ag_schema_node;

typedef struct ag_schema_anchor {
    const json_t *value;
    const json_t *resource; /* in which it is known */
    const char *name;
    bool is_id; /* $id, else $anchor or #name */
} ag_schema_anchor;

typedef struct ag_schema_doc {
    json_t *root;      /* owned */
    json_t *constants; /* owned: an array of schemas that stand for values */
    bool old_ref;      /* up to draft 7: $ref alone counts, its siblings do not */
    ag_schema_node *schemas;
    size_t n, cap;
    uint32_t *slots; /* number + 1 by value */
    size_t n_slots;
    ag_schema_anchor *anchors;
    size_t n_anchors, anchors_cap;
    size_t compared; /* names of anchors, with those of references */
} ag_schema_doc;

/* Schema 0 is the whole document. Release with ag_schema_doc_free whatever this returns. */
ag_status ag_schema_doc_load(ag_schema_doc *d, const char *text, size_t n, ag_error *err);
void ag_schema_doc_free(ag_schema_doc *d);

/* The number of schemas[parent].value[key], or of its member sub or its element index. */
ag_status ag_schema_doc_child(ag_schema_doc *d, uint32_t parent, const char *key, const char *sub,
                              size_t index, const json_t *value, uint32_t *id, ag_error *err);
/* A schema {"const": value}, where value is a part of a keyword of schemas[parent]. */
ag_status ag_schema_doc_const(ag_schema_doc *d, uint32_t parent, const char *key,
                              const json_t *value, uint32_t *id, ag_error *err);
/* What "$ref" of schemas[at] means: AG_UNSUPPORTED if it is outside of the document, AG_LIMIT if
 * too many references look for too many anchors. */
ag_status ag_schema_doc_ref(ag_schema_doc *d, uint32_t at, const char *ref, uint32_t *id,
                            ag_error *err);

/* The JSON pointer of a schema's keyword, for messages. */
const char *ag_schema_doc_path(const ag_schema_doc *d, uint32_t id, const char *keyword,
                               char out[AG_SCHEMA_PATH_BYTES]);

#endif
