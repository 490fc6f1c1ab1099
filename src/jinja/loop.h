/* SPDX-License-Identifier: Apache-2.0 */
/* {% for %} loops and the variable `loop`. */
#ifndef AG_JINJA_LOOP_H
#define AG_JINJA_LOOP_H

#include "jinja/eval.h"

/* Executes the `for` node n. Returns how its statement ended, as ag_jexec() does. */
ag_jflow ag_jexec_for(ag_jctx *c, const ag_jnode *n);

/* Returns AG_JFAIL without recording an error if `loop` has no such attribute. */
ag_jv ag_jloop_attribute(ag_jctx *c, ag_jv loop, const ag_jstr *name);

#endif
