/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupt check: cancels loops over messages, tools and JSON values. */
#ifndef AG_CHAT_INTERRUPT_H
#define AG_CHAT_INTERRUPT_H

#include <antigravity/status.h>

/* Fails with AG_CANCELLED, "<what>: interrupted", if the thread's interrupt function says that its
 * work must end. Call it once per list item: every 16th call of a thread calls the function. */
ag_status ag_chat_check_interrupt(const char *what, ag_error *err);

#endif
