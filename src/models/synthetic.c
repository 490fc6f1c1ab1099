/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic models of another model's sizes, and properties of named ones. */
#include "models/model_impl.h"

/* Reduces the model to its first n layers, and those up to the first with attention: a session
 * needs one. */
static void truncate_layers(ag_model_spec *s, uint32_t n) {
    uint32_t first = 0;
    while (first + 1 < s->n_layers && ag_spec_layer(s, first)->mixer != AG_MIXER_ATTENTION) first++;
    if (n <= first) n = first + 1;
    if (n < s->n_layers) s->n_layers = n;
}

ag_status ag_model_synthetic_like(ag_backend *be, const char *path, const ag_model_params *params,
                                  uint32_t n_layers, ag_model **out, ag_error *err) {
    *out = NULL;
    ag_model_params p;
    ag_weight_source *source;
    ag_model_spec spec;
    ag_weights_summary summary;
    ag_model_info info;
    ag_status st = ag_model_open(be, path, params, &p, &source, &spec, &summary, &info, err);
    ag_source_destroy(source);
    if (st != AG_OK) return st;
    /* The family and the naming state how files store tensors. */
    spec.family = NULL;
    spec.naming = spec.expert_naming = 0;
    if (n_layers) truncate_layers(&spec, n_layers);
    if (p.as_is || info.weight_type == AG_MXFP4) p.weights = info.weight_type;
    p.as_is = false;
    return ag_model_random(be, &spec, &p, out, err);
}

ag_status ag_model_inspect_synthetic(const char *shape, const ag_model_params *params,
                                     ag_model_info *out, ag_error *err) {
    ag_weights_plan unused;
    return ag_model_plan_synthetic(NULL, shape, params, out, &unused, err);
}
