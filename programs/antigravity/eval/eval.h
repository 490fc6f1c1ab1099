/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval: its measures, one file each. They get argv from their own name on and return an
 * exit code. */
#ifndef ANTIGRAVITY_EVAL_H
#define ANTIGRAVITY_EVAL_H

#include <antigravity/antigravity.h>

int eval_ppl(int argc, char **argv);
int eval_needle(int argc, char **argv);
int eval_kl(int argc, char **argv);
int eval_ruler(int argc, char **argv);

/* After the last step of a measure: the exit code, a failure or an interruption having been said.
 */
int eval_result(ag_status status, ag_error *err);
/* Remembers in *most what the session's cache takes, if it never took more. */
void cache_track(ag_session *s, size_t *max_bytes);

#endif
