/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of mixtures of experts that several families share. */
#include "core/fail.h"
#include "models/families/family.h"

/* Maximum values of a row for all experts that it uses. */
enum { MAX_VALUES = 1 << 26 };

ag_status ag_config_experts(ag_config_reader *r, const ag_model_spec *s, ag_expert_spec *x) {
    ag_route_params *route = &x->route;
    double gating = 0; /* none stated */
    if (!x->width) x->width = s->intermediate_size;
    if (!ag_config_size(r, "num_experts", AG_EXPERTS_MAX, &route->n_experts))
        ag_config_size(r, "num_local_experts", AG_EXPERTS_MAX, &route->n_experts);
    ag_config_size(r, "num_experts_per_tok", AG_EXPERTS_MAX, &route->n_used);
    ag_config_size(r, "moe_intermediate_size", 1 << 22, &x->width);
    ag_config_bool(r, "norm_topk_prob", &route->normalise);
    ag_config_real(r, "expert_gating_func", 0, 100, &gating);
    AG_TRY(r->status);
    /* GGUF files: 2 is a sigmoid; 1 and 3 are a softmax before and after the choice. */
    if (gating > 3 || (gating != 0 && (gating == 2) != (route->scoring == AG_SCORING_SIGMOID))) {
        return AG_FAIL(r->err, UNSUPPORTED,
                       "%s: expert_gating_func is %g, which the routers of this architecture do "
                       "not use",
                       r->where, gating);
    }
    if (route->n_used > route->n_experts) {
        return AG_FAIL(r->err, FORMAT, "%s: num_experts_per_tok is %u, but num_experts is %u",
                       r->where, route->n_used, route->n_experts);
    }
    const uint32_t widest = x->width > s->hidden_size ? x->width : s->hidden_size;
    if ((uint64_t)route->n_used * widest <= MAX_VALUES) return AG_OK;
    return AG_FAIL(r->err, LIMIT, "%s: %u experts of %u values for a token; at most %d values",
                   r->where, route->n_used, widest, MAX_VALUES);
}
