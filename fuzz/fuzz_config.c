/* SPDX-License-Identifier: Apache-2.0 */
/* The input is a config.json and, after a NUL, a generation_config.json. An accepted input must be
 * in range and give finite rotary frequencies. */
#include "fuzz.h"

#include "models/config.h"
#include "models/rope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_rope(const ag_rope_spec *rope, bool is_long) {
    float *inv_freq = malloc(rope->n_rotated / 2 * sizeof *inv_freq);
    if (!inv_freq) abort();
    ag_rope_inv_freq(rope, is_long, inv_freq);
    for (uint32_t i = 0; i < rope->n_rotated / 2; i++) {
        if (!isfinite(inv_freq[i]) || inv_freq[i] < 0) abort();
    }
    free(inv_freq);
}

static void check_experts(const ag_model_spec *s, const ag_expert_spec *x) {
    const ag_route_params *r = &x->route;
    if (!r->n_experts) return;
    if (r->n_experts > AG_EXPERTS_MAX || !r->n_used || r->n_used > r->n_experts) abort();
    if (!x->width || (uint64_t)r->n_used * x->width > UINT32_MAX / 8) abort();
    if ((uint64_t)r->n_used * s->hidden_size > UINT32_MAX / 8) abort();
    if (!isfinite(r->factor) || !isfinite(r->sum_eps) || !isfinite(x->gate_limit)) abort();
}

static void check_kind(const ag_model_spec *s, const ag_layer_spec *k) {
    check_experts(s, &k->experts);
    if (k->mixer != AG_MIXER_ATTENTION) {
        if (k->conv_taps < 2 || k->conv_taps > AG_CONV_TAPS_MAX) abort();
        return;
    }
    if (!k->n_kv_heads || k->n_heads % k->n_kv_heads || !k->head_dim || k->head_dim % 2) abort();
    if ((uint64_t)k->n_heads * k->head_dim > 1 << 20 ||
        (k->rope >= s->n_ropes && k->rope != AG_NO_ROPE)) {
        abort();
    }
    if (!(k->scale > 0) || !isfinite(k->scale) || !(k->softcap >= 0)) abort();
}

static void check(const ag_model_spec *s) {
    if (!s->vocab_size || !s->hidden_size || !s->intermediate_size || !s->max_positions) abort();
    if (!s->n_layers || s->n_layers > AG_MAX_LAYERS || !s->family) abort();
    if (!s->n_kinds || s->n_kinds > AG_MAX_LAYER_KINDS || s->n_ropes > AG_MAX_ROPES) abort();
    if (!(s->norm_eps > 0) || s->n_eos > AG_MAX_EOS) abort();
    if (s->bos_id < -1 || s->bos_id >= (int64_t)s->vocab_size) abort();
    for (uint32_t k = 0; k < s->n_kinds; k++) check_kind(s, &s->kinds[k]);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        if (s->kind_of[l] >= s->n_kinds) abort();
    }
    for (uint32_t i = 0; i < s->n_ropes; i++) {
        check_rope(&s->ropes[i], false);
        check_rope(&s->ropes[i], true);
    }
    for (size_t i = 0; i < s->n_eos; i++) {
        if (s->eos_ids[i] < 0 || s->eos_ids[i] >= (int64_t)s->vocab_size) abort();
    }
}

static char *exact_copy(const uint8_t *data, size_t n) {
    char *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, data, n);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
    size_t n_config = nul ? (size_t)(nul - data) : n;
    size_t n_more = nul ? n - n_config - 1 : 0;
    char *text = exact_copy(data, n_config), *more = exact_copy(data + n - n_more, n_more);
    ag_config_text config = {text, n_config, "config"}, generation = {more, n_more, "generation"};
    ag_model_spec c;
    ag_error err;
    if (ag_spec_parse(&config, nul ? &generation : NULL, &c, &err) == AG_OK) check(&c);
    free(text);
    free(more);
    return 0;
}
