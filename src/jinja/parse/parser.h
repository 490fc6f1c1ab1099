/* SPDX-License-Identifier: Apache-2.0 */
/* Parser: builds a template's tree from tokens by recursive descent with bounded depth. */
#ifndef AG_JINJA_PARSE_PARSER_H
#define AG_JINJA_PARSE_PARSER_H

#include "jinja/parse/lexer.h"
#include "jinja/parse/template.h"

enum { AG_JMAX_VARIABLES = 1000 };

typedef struct ag_jparser {
    ag_jinja *t;
    const ag_jtoken *at;    /* current token; the last one is AG_JT_EOF */
    ag_jmacro_def **macros; /* macros being parsed, innermost last */
    size_t n_macros, cap_macros;
    uint32_t depth;
    uint32_t n_fors;  /* around the current statement, including those outside its macro */
    uint32_t n_loops; /* around the current statement, within its macro */
    bool lenient;    /* within an `if`: an unknown filter or test fails only when it is evaluated */
    bool reads_loop; /* `loop` was read since this flag was cleared */
    bool is_target;  /* names are being assigned to, not read */
    const char *tag; /* innermost open statement, for messages */
    ag_status status;
    ag_error *err;
} ag_jparser;

/* These functions return NULL or false after they have recorded an error. */
ag_jnode *ag_jparse_expression(ag_jparser *p);
ag_jnode *ag_jparse_tuple(ag_jparser *p, bool with_condition, const char *end_name);
ag_jnode *ag_jparse_target(ag_jparser *p, bool with_namespace, const char *end_name);
ag_jnode *ag_jparse_filters(ag_jparser *p, ag_jnode *value, bool at_name);
/* Stops at one of `end_tags` without consuming it. */
bool ag_jparse_body(ag_jparser *p, const char *const *end_tags, ag_jbody *out);

ag_jnode *ag_jnode_create(ag_jparser *p, ag_jnode_kind kind);
void *ag_jparse_fail(ag_jparser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *ag_jparse_alloc(ag_jparser *p, size_t bytes); /* zeroed */
bool ag_jparse_grow(ag_jparser *p, void *array, size_t n, size_t *cap, size_t size);
ag_jstr *ag_jparse_string(ag_jparser *p, const char *text, size_t len);
ag_jstr *ag_jparse_name(ag_jparser *p); /* consumes a name */
bool ag_jparse_variable(ag_jparser *p, const ag_jstr *name, uint32_t *id);

bool ag_jparse_is_name(const ag_jparser *p, const char *name);
bool ag_jparse_skip(ag_jparser *p, ag_jtoken_kind kind);
bool ag_jparse_skip_name(ag_jparser *p, const char *name);
bool ag_jparse_expect(ag_jparser *p, ag_jtoken_kind kind);
bool ag_jparse_expect_name(ag_jparser *p, const char *name);
bool ag_jparse_enter(ag_jparser *p);
static inline void ag_jparse_leave(ag_jparser *p) { p->depth--; }

/* Functions shared by the two files of the expression parser. */
ag_jnode *ag_jparse_primary(ag_jparser *p, bool with_namespace);
ag_jnode *ag_jparse_postfix(ag_jparser *p, ag_jnode *n);     /* .name [item] (call) */
ag_jnode *ag_jparse_filter_expr(ag_jparser *p, ag_jnode *n); /* |filter, is test */

ag_jnode *ag_jparse_const(ag_jparser *p, ag_jv value);
/* Returns NULL if a or b is NULL. */
ag_jnode *ag_jparse_binary(ag_jparser *p, ag_jnode_kind kind, int op, ag_jnode *a, ag_jnode *b);
bool ag_jparse_append(ag_jparser *p, ag_jnode *list, size_t *cap, ag_jnode *item);

#endif
