/* SPDX-License-Identifier: Apache-2.0 */
/* Memory budget: keeps the process below params.memory_limit, by admission control. Before memory
 * is allocated for a request or a model, the engine thread reserves it here. Counted are the bytes
 * that the process uses, the bytes that are reserved and not used yet, and a margin. To make space
 * the budget evicts cached sessions and unloads idle models. Without a limit every reservation
 * succeeds. */
#ifndef AG_SERVING_MEMORY_BUDGET_H
#define AG_SERVING_MEMORY_BUDGET_H

#include "serving/loader.h"
#include "serving/prefix_cache.h"

typedef struct ag_memory_budget {
    const ag_serving_params *params; /* borrowed, as all below */
    ag_backend *backend;
    ag_request_queue *queue;
    ag_served_models *models;
    ag_prefix_cache *prefixes;
    ag_engine_lock *lock;
    const ag_model_loader *loader;
    bool keeps_weights; /* no model is unloaded to make space */
    bool has_warned;    /* running sessions have a hint that memory is short */
} ag_memory_budget;

/* Returns the bytes that the limit applies to and that are in use now. */
uint64_t ag_memory_budget_used(const ag_memory_budget *b);
/* Returns how many of `bytes` more would exceed the limit if nothing is evicted. */
uint64_t ag_memory_budget_shortfall(const ag_memory_budget *b, uint64_t bytes);
/* Makes space for `bytes` more; `keep` is not unloaded. AG_NOMEM: there is none; AG_BUSY: there
 * will be when sessions have been written to files. `what` names the user of the memory in
 * messages. */
ag_status ag_memory_budget_reserve(ag_memory_budget *b, uint64_t bytes, const ag_served_model *keep,
                                   const char *what, ag_error *err);

/* Sets the bytes that the request will use at most: kv_reserved, fixed_reserved,
 * constraint_reserved. */
ag_status ag_memory_budget_plan_request(const ag_memory_budget *b, ag_served_request *r,
                                        ag_error *err);
/* Reserves memory for more tokens of an answer without max_tokens. Returns false if there is none.
 */
bool ag_memory_budget_extend_answer(ag_memory_budget *b, ag_answer *a);
/* Reserves more for a constraint if little is left of what was reserved. */
ag_status ag_memory_budget_extend_constraint(ag_memory_budget *b, ag_served_request *r,
                                             ag_error *err);
/* Returns the bytes of a request's constraint from which on it must be extended. */
uint64_t ag_memory_budget_constraint_limit(const ag_memory_budget *b, const ag_served_request *r);

/* Reserves memory for the weights, m->scratch_bytes and one small request. */
ag_status ag_memory_budget_reserve_weights(ag_memory_budget *b, ag_served_model *m, ag_error *err);
/* Returns the bytes that a model needs besides its weights; 0 on failure. */
uint64_t ag_memory_budget_scratch(const ag_memory_budget *b, const ag_served_model *m,
                                  ag_error *err);

#endif
