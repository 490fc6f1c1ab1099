/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the calling thread's interrupt function (see antigravity/interrupt.h) in long loops. */
#ifndef AG_CORE_INTERRUPT_H
#define AG_CORE_INTERRUPT_H

#include <antigravity/interrupt.h>
#include <stddef.h>

/* Returns true if the thread's interrupt function says that its work must end; false without such a
 * function. Costs a call through a pointer: call it once per 1,000 simple steps or per item of a
 * list, not per byte. The caller returns AG_CANCELLED. */
bool ag_interrupted(void);

/* The same for loops with short steps: checks every 4,096 steps. */
static inline bool ag_interrupted_at(size_t step) {
    return step % 4096 == 4095 && ag_interrupted();
}

#endif
