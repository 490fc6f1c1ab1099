/* SPDX-License-Identifier: Apache-2.0 */
/* Step results: delivers logits, chosen tokens and hidden states of a pass to callers. */
#ifndef AG_SESSION_STEP_LOGITS_H
#define AG_SESSION_STEP_LOGITS_H

#include "session/session_impl.h"

/* Computes the logits of all output rows, in groups of AG_LOGIT_ROWS, and delivers them to
 * callbacks and samplers. `computed`: the pass has already computed the logits of the only item. */
ag_status ag_step_deliver_logits(const ag_step_item *items, size_t n, bool computed, ag_error *err);
/* Delivers the hidden state of every row to items with a `hidden` callback. */
ag_status ag_step_deliver_hidden(const ag_step_item *items, size_t n, ag_error *err);

#endif
