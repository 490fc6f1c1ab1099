/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluator: evaluates expressions, executes statements and calls values. */
#ifndef AG_JINJA_EVAL_H
#define AG_JINJA_EVAL_H

#include "jinja/context.h"
#include "jinja/parse/template.h"

/* Variables of a for body, a macro or a call block. The context holds those of the top level. */
struct ag_jscope {
    ag_jscope *parent;
    struct ag_jvariable {
        uint32_t id;
        ag_jv value;
    } * items;
    size_t n, cap;
};

struct ag_jmacro {
    const ag_jmacro_def *def;
    ag_jscope *scope; /* scope of its definition */
};

typedef enum ag_jflow { AG_JFLOW_NEXT, AG_JFLOW_BREAK, AG_JFLOW_CONTINUE, AG_JFLOW_FAIL } ag_jflow;

ag_jv ag_jeval(ag_jctx *c, const ag_jnode *n);
ag_jflow ag_jexec(ag_jctx *c, const ag_jbody *body);

ag_jscope *ag_jscope_create(ag_jctx *c, ag_jscope *parent);
bool ag_jscope_set(ag_jctx *c, ag_jscope *s, uint32_t id, ag_jv value); /* s NULL: top level */
ag_jv ag_jvariable_get(ag_jctx *c, uint32_t id); /* an undefined value if it is not set */
bool ag_jassign(ag_jctx *c, const ag_jnode *target, ag_jv value);

ag_jv ag_jmacro_create(ag_jctx *c, const ag_jmacro_def *def);
bool ag_jeval_args(ag_jctx *c, const ag_jnode *call, ag_jargs *out);
ag_jv ag_jcall(ag_jctx *c, ag_jv callee, const ag_jargs *args);

#endif
