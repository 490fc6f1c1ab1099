/* SPDX-License-Identifier: Apache-2.0 */
/* Gives callers the results of a pass: logits, chosen tokens and hidden states. */
#ifndef AG_SESSION_STEP_LOGITS_H
#define AG_SESSION_STEP_LOGITS_H

#include "session/session_impl.h"

/* Computes the logits that the items want, in groups of AG_LOGIT_ROWS rows, and gives them to their
 * callers or samplers. `computed`: the pass has already computed the only item's. */
ag_status ag_step_deliver_logits(const ag_step_item *items, size_t n, bool computed, ag_error *err);
/* Gives the hidden state of every row to the items that want it. */
ag_status ag_step_deliver_hidden(const ag_step_item *items, size_t n, ag_error *err);

#endif
