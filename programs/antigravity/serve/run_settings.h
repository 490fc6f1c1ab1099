/* SPDX-License-Identifier: Apache-2.0 */
/* How answers are chosen and kept: what the request says, over what the model and the server say.
 */
#ifndef ANTIGRAVITY_SERVE_RUN_SETTINGS_H
#define ANTIGRAVITY_SERVE_RUN_SETTINGS_H

#include "protocol.h"
#include "run.h"

/* Fills run->params, but for the prompts. constrained: the answer says itself where it ends. */
bool run_apply_settings(serve_run *run, bool constrained, serve_error *e);

#endif
