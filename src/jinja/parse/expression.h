/* SPDX-License-Identifier: Apache-2.0 */
/* Functions shared by the two files of the expression parser. */
#ifndef AG_JINJA_PARSE_EXPRESSION_H
#define AG_JINJA_PARSE_EXPRESSION_H

#include "jinja/parse/parser.h"

ag_jnode *ag_jparse_primary(ag_jparser *p, bool with_namespace);
ag_jnode *ag_jparse_postfix(ag_jparser *p, ag_jnode *n);     /* .name [item] (call) */
ag_jnode *ag_jparse_filter_expr(ag_jparser *p, ag_jnode *n); /* |filter, is test */

ag_jnode *ag_jparse_const(ag_jparser *p, ag_jv value);
/* Returns NULL if a or b is NULL. */
ag_jnode *ag_jparse_binary(ag_jparser *p, ag_jnode_kind kind, int op, ag_jnode *a, ag_jnode *b);
bool ag_jparse_append(ag_jparser *p, ag_jnode *list, size_t *cap, ag_jnode *item);

#endif
