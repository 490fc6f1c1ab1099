/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval: one function per measure. Each gets argv from its own name on and returns an
 * exit code. */
#ifndef ANTIGRAVITY_EVAL_H
#define ANTIGRAVITY_EVAL_H

#include <antigravity/antigravity.h>

int eval_ppl(int argc, char **argv);
int eval_needle(int argc, char **argv);
int eval_kl(int argc, char **argv);
int eval_ruler(int argc, char **argv);
int eval_routes(int argc, char **argv);

/* Returns the exit code of a measure. Reports a failure or an interruption. */
int eval_result(ag_status status, ag_error *err);
/* Raises *max_bytes to the memory of the session's cache if that is larger. */
void cache_track(ag_session *s, size_t *max_bytes);

#endif
