/* SPDX-License-Identifier: Apache-2.0 */
/* Log probabilities of tokens, from logits. */
#ifndef AG_SERVING_LOGPROBS_H
#define AG_SERVING_LOGPROBS_H

#include "serving/request.h"

enum { AG_SERVING_MAX_TOP = 20 };

/* Writes the log probability of e->id and, as e->top, those of the request's n_top most likely
 * tokens. top has space for AG_SERVING_MAX_TOP. */
void ag_event_set_logprobs(ag_request_event *e, const ag_request_params *p, const float *logits,
                           ag_logprob *top);
/* Reports the prompt's token after row i of the current chunk, and the first token before it.
 * `user` is the request. An ag_logits_fn. A repeated step reports no token twice. */
bool ag_request_score_row(void *user, size_t i, const float *logits);

#endif
