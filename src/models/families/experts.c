/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of mixtures of experts that several families share. */
#include "core/fail.h"
#include "models/families/family.h"

ag_status ag_config_experts(ag_config_reader *r, const ag_model_spec *s, ag_expert_spec *x) {
    ag_route_params *route = &x->route;
    if (!x->width) x->width = s->intermediate_size;
    if (!ag_config_size(r, "num_experts", AG_EXPERTS_MAX, &route->n_experts))
        ag_config_size(r, "num_local_experts", AG_EXPERTS_MAX, &route->n_experts);
    ag_config_size(r, "num_experts_per_tok", AG_EXPERTS_MAX, &route->n_used);
    ag_config_size(r, "moe_intermediate_size", 1 << 22, &x->width);
    ag_config_bool(r, "norm_topk_prob", &route->normalise);
    AG_TRY(r->status);
    if (route->n_used <= route->n_experts) return AG_OK;
    return AG_FAIL(r->err, FORMAT, "%s: num_experts_per_tok is %u, but num_experts is %u", r->where,
                   route->n_used, route->n_experts);
}
