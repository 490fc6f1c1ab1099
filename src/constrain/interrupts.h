/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupts for compilation: long loops count their steps here. */
#ifndef AG_CONSTRAIN_INTERRUPTS_H
#define AG_CONSTRAIN_INTERRUPTS_H

#include <antigravity/status.h>
#include <stddef.h>

/* Counts n steps of the calling thread. Checks for an interrupt once per 1,024 steps and fails with
 * AG_CANCELLED if the thread is interrupted. A step takes less than a microsecond. */
ag_status ag_compile_steps(size_t n, ag_error *err);

#endif
