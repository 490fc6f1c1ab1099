/* SPDX-License-Identifier: Apache-2.0 */
/* The logit_bias of a request: tokens, as ids or as texts, whose logits get a bias. */
#ifndef ANTIGRAVITY_SERVE_JOB_LOGIT_BIAS_H
#define ANTIGRAVITY_SERVE_JOB_LOGIT_BIAS_H

#include "../protocol/protocol.h"

#include <antigravity/tokenizer.h>

/* Converts s->logit_bias, {"15": -100, " the": 2} or [[15, -100], [" the", false]], to s->bias.
 * A text stands for all of its tokens; false forbids them. Without a tokenizer only ids are
 * accepted. */
bool logit_bias_read(serve_sampling *s, const ag_tokenizer *t, serve_error *e);

#endif
