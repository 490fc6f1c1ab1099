/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings: pools the final hidden states of a prompt into one vector. */
#include "core/alloc.h"
#include "core/fail.h"
#include "serving/serving_impl.h"

#include <math.h>

ag_status ag_embedding_begin(ag_served_request *r, ag_error *err) {
    const size_t dim = r->p.model->info.hidden_size;
    r->pooled = ag_calloc(dim, sizeof *r->pooled);
    r->answers = ag_calloc(r->p.n_answers, sizeof *r->answers);
    if (!r->pooled || !r->answers) return AG_FAIL(err, NOMEM, "embedding of %zu values", dim);
    r->answers[0] = (ag_answer){.request = r, .ended = true};
    return AG_OK;
}

bool ag_embedding_add_row(void *user, size_t i, const float *hidden) {
    ag_served_request *r = user;
    const size_t dim = r->p.model->info.hidden_size, at = r->n_read + i;
    if (at < r->n_pooled) return true; /* added by a step that failed afterwards */
    r->n_pooled = at + 1;
    const bool only_first = r->p.pooling == AG_EMBEDDING_FIRST && at > 0;
    const bool only_last = r->p.pooling == AG_EMBEDDING_LAST && at + 1 < r->p.n_prompt;
    for (size_t k = 0; !only_first && !only_last && k < dim; k++) r->pooled[k] += (double)hidden[k];
    return true;
}

ag_status ag_embedding_end(ag_served_request *r, ag_error *err) {
    const size_t dim = r->p.model->info.hidden_size;
    double squares = 0;
    for (size_t k = 0; k < dim; k++) squares += r->pooled[k] * r->pooled[k];
    if (!(squares > 0) || !isfinite(squares))
        return AG_FAIL(err, INVALID, "the embedding is zero or not finite");
    float *embedding = ag_calloc(dim, sizeof *embedding);
    if (!embedding) return AG_FAIL(err, NOMEM, "embedding of %zu values", dim);
    for (size_t k = 0; k < dim; k++) embedding[k] = (float)(r->pooled[k] / sqrt(squares));
    ag_request_event e = {.kind = AG_REQUEST_EMBEDDED, .id = -1};
    e.embedding = embedding;
    e.n_embedding = dim;
    ag_request_send_event(r, &e);
    ag_free(embedding);
    return AG_OK;
}
