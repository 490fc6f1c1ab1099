/* SPDX-License-Identifier: Apache-2.0 */
#include "core/interrupt.h"

#include <stddef.h>

static _Thread_local ag_interrupt_fn interrupt;
static _Thread_local void *interrupt_user;

void ag_set_thread_interrupt(ag_interrupt_fn fn, void *user) {
    interrupt = fn;
    interrupt_user = user;
}

bool ag_interrupted(void) { return interrupt && interrupt(interrupt_user); }
