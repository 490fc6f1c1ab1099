/* SPDX-License-Identifier: Apache-2.0 */
/* Ends long work on the thread that does it: rendering, tokenizing, compiling a constraint. */
#ifndef ANTIGRAVITY_INTERRUPT_H
#define ANTIGRAVITY_INTERRUPT_H

#include <antigravity/status.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns true if the calling thread must end its work. Called about every millisecond of long
 * work, so it must be quick. It must not call the library. */
typedef bool (*ag_interrupt_fn)(void *user);

/* Sets the interrupt function of the calling thread; NULL removes it. Functions of ag_chat,
 * ag_tokenizer and ag_constraint ask it; once it returns true, they fail with AG_CANCELLED. Other
 * threads are not affected. `user` is borrowed until the function is replaced or removed. */
AG_API void ag_set_thread_interrupt(ag_interrupt_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
