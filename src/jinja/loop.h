/* SPDX-License-Identifier: Apache-2.0 */
/* {% for %} and its `loop`. */
#ifndef AG_JINJA_LOOP_H
#define AG_JINJA_LOOP_H

#include "jinja/eval.h"

ag_jflow ag_jexec_for(ag_jctx *c, const ag_jnode *n);

/* AG_JFAIL without an error: there is none of that name. */
ag_jv ag_jloop_attribute(ag_jctx *c, ag_jv loop, const ag_jstr *name);

#endif
