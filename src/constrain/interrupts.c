/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/interrupts.h"

#include "core/fail.h"
#include "core/interrupt.h"

enum { CHECK_EVERY = 1024 };

static _Thread_local size_t n_steps;

ag_status ag_compile_steps(size_t n, ag_error *err) {
    n_steps += n;
    if (n_steps < CHECK_EVERY) return AG_OK;
    n_steps = 0;
    if (!ag_interrupted()) return AG_OK;
    n_steps = CHECK_EVERY; /* makes the next loop end, too */
    return AG_FAIL(err, CANCELLED, "compiling a constraint: interrupted");
}
