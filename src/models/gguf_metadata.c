/* SPDX-License-Identifier: Apache-2.0 */
#include "models/gguf_config.h"

#include "core/fail.h"
#include "formats/json.h"
#include "models/families/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct metadata {
    ag_gguf_writer *w;
    const ag_model_spec *s;
    const char *architecture;
    json_t *terms; /* owned; keys of the configuration, completed */
} metadata;

static const char *key_of(const metadata *m, const char *key, char name[160]) {
    snprintf(name, 160, "%.60s.%.90s", m->architecture, key);
    return name;
}

static void put_text(const metadata *m, const char *key, const char *text) {
    char name[160];
    ag_gguf_put_string(m->w, key_of(m, key, name), (ag_source_string){text, strlen(text)});
}

static void put_size(const metadata *m, const char *key, uint32_t v) {
    char name[160];
    ag_gguf_put_u32(m->w, key_of(m, key, name), v);
}

/* Puts a number or bool of the object under its key, if it has one. */
static void put_number(const metadata *m, const ag_gguf_key *k, const json_t *object) {
    char name[160];
    const json_t *v = json_object_get(object, k->config);
    if (json_is_boolean(v)) ag_gguf_put_bool(m->w, key_of(m, k->gguf, name), json_is_true(v));
    if (!json_is_number(v)) return;
    const double x = json_number_value(v);
    if (k->is_real) ag_gguf_put_f32(m->w, key_of(m, k->gguf, name), (float)x);
    else ag_gguf_put_u32(m->w, key_of(m, k->gguf, name), (uint32_t)x);
}

/* ---- terms ---- */

/* Returns the first kind with attention and without a window, or else the first with attention. */
static const ag_layer_spec *main_kind(const ag_model_spec *s) {
    const ag_layer_spec *first = NULL;
    for (uint32_t i = s->n_kinds; i--;) {
        const ag_layer_spec *kind = &s->kinds[i];
        if (kind->mixer != AG_MIXER_ATTENTION) continue;
        if (!first || !kind->window || first->window) first = kind;
    }
    return first ? first : &s->kinds[0];
}

/* Returns the first kind with the mixer (for attention: with a window too), or a kind of zeros. */
static const ag_layer_spec *kind_with(const ag_model_spec *s, ag_mixer mixer) {
    static const ag_layer_spec none;
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        const ag_layer_spec *kind = &s->kinds[i];
        if (kind->mixer == mixer && (mixer != AG_MIXER_ATTENTION || kind->window)) return kind;
    }
    return &none;
}

/* Returns the first kind with experts, or a kind of zeros. */
static const ag_expert_spec *experts_of(const ag_model_spec *s) {
    static const ag_expert_spec none;
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        if (s->kinds[i].experts.route.n_experts) return &s->kinds[i].experts;
    }
    return &none;
}

/* Returns the number of a router's scores in GGUF files; 0 without experts. */
static double gating_number(const ag_route_params *p) {
    static const double numbers[] = {
        [AG_SCORING_SOFTMAX] = 1, [AG_SCORING_SIGMOID] = 2, [AG_SCORING_CHOSEN] = 3};
    return p->n_experts ? numbers[p->scoring] : 0;
}

/* Returns the number of layers before the first with experts; 0 without experts. */
static uint32_t count_dense(const ag_model_spec *s) {
    uint32_t n = 0;
    if (!experts_of(s)->route.n_experts) return 0;
    while (!ag_spec_layer(s, n)->experts.route.n_experts) n++;
    return n;
}

static uint32_t count_shared(const ag_model_spec *s) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < s->n_layers; l++) n += ag_spec_layer(s, l)->shares_kv;
    return n;
}

static uint32_t window_of(const ag_model_spec *s) {
    uint32_t window = 0;
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        window = s->kinds[i].window > window ? s->kinds[i].window : window;
    }
    return window;
}

/* Replaces keys that a configuration may omit or state wrongly by the description's values. 0
 * removes a key. */
static bool complete_terms(json_t *terms, const ag_model_spec *s) {
    const ag_layer_spec *kind = main_kind(s), *windows = kind_with(s, AG_MIXER_ATTENTION);
    const ag_layer_spec *net = kind_with(s, AG_MIXER_DELTA_NET);
    const ag_delta_params *delta = &net->delta;
    const ag_expert_spec *experts = experts_of(s);
    const double factor = (double)experts->route.factor;
    const struct {
        const char *term;
        double value;
    } computed[] = {
        {"num_hidden_layers", s->n_layers},
        {"max_position_embeddings", s->max_positions},
        {"hidden_size", s->hidden_size},
        {"intermediate_size", s->intermediate_size},
        {"num_attention_heads", kind->n_heads},
        {"num_key_value_heads", kind->n_kv_heads},
        {"head_dim", kind->head_dim},
        {"sliding_window", window_of(s)},
        {"attn_logit_softcapping", (double)kind->softcap},
        {"final_logit_softcapping", (double)s->logit_softcap},
        {"rope_theta", s->ropes[0].theta},
        {"rope_local_base_freq", s->n_ropes > 1 ? s->ropes[1].theta : 0},
        {"vocab_size", s->vocab_size},
        /* keys of some families */
        {"window_head_dim", windows->head_dim},
        {"num_kv_shared_layers", count_shared(s)},
        {"hidden_size_per_layer_input", s->layer_input},
        {"conv_L_cache", kind_with(s, AG_MIXER_SHORT_CONV)->conv_taps},
        {"linear_conv_kernel_dim", net->conv_taps},
        {"linear_num_key_heads", delta->n_k_heads},
        {"linear_num_value_heads", delta->n_v_heads},
        {"linear_key_head_dim", delta->k_dim},
        {"linear_inner_size", (double)delta->n_v_heads * delta->v_dim},
        {"num_experts", experts->route.n_experts},
        {"num_experts_per_tok", experts->route.n_used},
        {"expert_gating_func", gating_number(&experts->route)},
        {"moe_intermediate_size", experts->width},
        {"shared_expert_intermediate_size", experts->shared_width},
        {"routed_scaling_factor", factor != 1 ? factor : 0},
        {"num_dense_layers", count_dense(s)},
    };
    for (size_t i = 0; i < sizeof computed / sizeof computed[0]; i++) {
        const json_t *stated = json_object_get(terms, computed[i].term);
        /* A 0 that the configuration states stays: llama.cpp needs the key. */
        if (computed[i].value == 0 && json_is_integer(stated) && !json_integer_value(stated))
            continue;
        json_object_del(terms, computed[i].term);
        const bool is_set = computed[i].value != 0;
        if (is_set && json_object_set_new(terms, computed[i].term, json_real(computed[i].value))) {
            return false;
        }
    }
    return json_object_get(terms, "rms_norm_eps") ||
           json_object_set_new(terms, "rms_norm_eps", json_real((double)s->norm_eps)) == 0;
}

static ag_status read_terms(const ag_weight_source *source, const ag_model_spec *s, json_t **out,
                            ag_error *err) {
    ag_source_text text;
    json_t *root = NULL;
    *out = NULL;
    AG_TRY(ag_source_read_text(source, AG_SOURCE_CONFIG, &text, err));
    ag_status st = ag_json_parse(text.text, text.n, text.name, &root, err);
    const json_t *inner = json_object_get(root, "text_config");
    if (st == AG_OK) {
        *out = json_deep_copy(json_is_object(inner) ? inner : root);
        if (!*out || !complete_terms(*out, s)) { st = AG_FAIL(err, NOMEM, "%s: terms", text.name); }
    }
    json_decref(root);
    ag_source_text_free(&text);
    return st;
}

/* ---- groups of keys ---- */

typedef int32_t (*of_layer_fn)(const ag_model_spec *s, uint32_t layer);

static int32_t kv_heads_of(const ag_model_spec *s, uint32_t layer) {
    const ag_layer_spec *kind = ag_spec_layer(s, layer);
    return kind->mixer == AG_MIXER_ATTENTION ? (int32_t)kind->n_kv_heads : 0;
}

static int32_t ffn_dim_of(const ag_model_spec *s, uint32_t layer) {
    return (int32_t)ag_spec_ffn_dim(s, ag_spec_layer(s, layer));
}

/* Puts a list with a number for each layer instead of the key `term`, if layers differ. */
static void put_layer_numbers(const metadata *m, const char *key, const char *term,
                              of_layer_fn of) {
    char name[160];
    int32_t numbers[AG_MAX_LAYERS];
    bool differ = false;
    for (uint32_t l = 0; l < m->s->n_layers; l++) {
        numbers[l] = of(m->s, l);
        differ = differ || numbers[l] != numbers[0];
    }
    if (!differ) return;
    json_object_del(m->terms, term);
    ag_gguf_put_array(m->w, key_of(m, key, name), AG_GGUF_I32, numbers, m->s->n_layers);
}

/* Puts keys about mixers. Readers of delta nets need one number of heads for all layers, and the
 * sections of positions, which only images use. */
static void put_mixers(const metadata *m) {
    char name[160];
    unsigned char recurrent[AG_MAX_LAYERS];
    int32_t sections[4] = {11, 11, 10, 0};
    const ag_model_spec *s = m->s;
    put_layer_numbers(m, "feed_forward_length", "intermediate_size", ffn_dim_of);
    if (!kind_with(s, AG_MIXER_DELTA_NET)->conv_taps) {
        put_layer_numbers(m, "attention.head_count_kv", "num_key_value_heads", kv_heads_of);
        return;
    }
    for (uint32_t l = 0; l < s->n_layers; l++) {
        recurrent[l] = ag_spec_layer(s, l)->mixer == AG_MIXER_DELTA_NET;
    }
    ag_gguf_put_array(m->w, key_of(m, "attention.recurrent_layers", name), AG_GGUF_BOOL, recurrent,
                      s->n_layers);
    const json_t *rope = json_object_get(m->terms, "rope_parameters");
    if (!rope) rope = json_object_get(m->terms, "rope_scaling");
    const json_t *configured = json_object_get(rope, "mrope_section");
    for (size_t i = 0; i < 4 && configured; i++) {
        sections[i] = (int32_t)json_number_value(json_array_get(configured, i));
    }
    ag_gguf_put_array(m->w, key_of(m, "rope.dimension_sections", name), AG_GGUF_I32, sections, 4);
}

/* Puts a list of layers with a window, if layers differ. */
static void put_layer_windows(const metadata *m) {
    char name[160];
    unsigned char has[AG_MAX_LAYERS];
    bool differ = false;
    for (uint32_t l = 0; l < m->s->n_layers; l++) {
        has[l] = ag_spec_layer(m->s, l)->window != 0;
        differ = differ || has[l] != has[0];
    }
    if (!differ) return;
    ag_gguf_put_array(m->w, key_of(m, "attention.sliding_window_pattern", name), AG_GGUF_BOOL, has,
                      m->s->n_layers);
}

/* Returns yarn's factor of rotated values as the multiplier that GGUF files have instead. */
static double log_multiplier(const ag_rope_spec *rope) {
    const double tenth = 0.1 * log(rope->scaling.factor);
    const double excess = (tenth + 1) / (double)rope->attention_factor - 1;
    return fabs(excess) < 1e-6 ? 0 : excess / tenth;
}

static json_t *yarn_terms(const ag_model_spec *m) {
    const ag_rope_scaling *s = &m->ropes[0].scaling;
    json_t *terms = json_pack(
        "{s:f, s:f, s:f, s:f}", "factor", s->factor, "original_max_position_embeddings",
        s->original_max_position_embeddings, "beta_fast", s->beta_fast, "beta_slow", s->beta_slow);
    const double multiplier = log_multiplier(&m->ropes[0]);
    bool ok = terms != NULL;
    if (multiplier != 0) {
        ok = ok && json_object_set_new(terms, "mscale_all_dim", json_real(multiplier)) == 0;
    }
    if (m->query_beta != 0) {
        const double beta = (double)m->query_beta;
        ok = ok && json_object_set_new(terms, "llama_4_scaling_beta", json_real(beta)) == 0;
    }
    if (ok) return terms;
    json_decref(terms);
    return NULL;
}

/* Puts keys of rope scaling. Frequencies of llama3, proportional and longrope are tensors. */
static ag_status put_scaling(const metadata *m, ag_error *err) {
    const ag_rope_spec *rope = &m->s->ropes[0];
    const ag_rope_scaling *s = &rope->scaling;
    const double original = s->original_max_position_embeddings;
    put_size(m, "rope.dimension_count", rope->n_rotated);
    if (s->type == AG_ROPE_DEFAULT || s->type == AG_ROPE_LLAMA3 ||
        s->type == AG_ROPE_PROPORTIONAL) {
        return AG_OK;
    }
    json_t *scaling = s->type == AG_ROPE_LINEAR ? json_pack("{s:f}", "factor", s->factor)
                      : s->type == AG_ROPE_YARN
                          ? yarn_terms(m->s)
                          : json_pack("{s:f, s:f}", "original_max_position_embeddings", original,
                                      "attention_factor", (double)rope->attention_factor);
    if (!scaling) return AG_FAIL(err, NOMEM, "rope scaling");
    put_text(m, "rope.scaling.type", ag_rope_type_name(s->type));
    for (const ag_gguf_key *k = ag_gguf_scaling_keys; k->gguf; k++) put_number(m, k, scaling);
    json_decref(scaling);
    return AG_OK;
}

static ag_status put_keys(const metadata *m, ag_error *err) {
    static const char key[] = "general.architecture";
    const ag_source_string name = {m->architecture, strlen(m->architecture)};
    const ag_gguf_key *more = m->s->family->gguf.keys;
    ag_gguf_put_string(m->w, key, name);
    put_mixers(m);
    for (const ag_gguf_key *k = ag_gguf_keys; k->gguf; k++) put_number(m, k, m->terms);
    for (; more && more->gguf; more++) put_number(m, more, m->terms);
    put_size(m, "attention.value_length", main_kind(m->s)->head_dim);
    put_layer_windows(m);
    return put_scaling(m, err);
}

ag_status ag_gguf_put_model(ag_gguf_writer *w, const ag_weight_source *source,
                            const ag_model_spec *s, ag_error *err) {
    metadata m = {w, s, s->family->gguf.architectures[0], NULL};
    if (!m.architecture) {
        return AG_FAIL(err, UNSUPPORTED, "%s: GGUF has no form for models of %s", source->path,
                       s->architecture);
    }
    ag_status st = read_terms(source, s, &m.terms, err);
    if (st == AG_OK) st = put_keys(&m, err);
    json_decref(m.terms);
    return st;
}

float ag_gguf_query_factor(const ag_model_spec *s) {
    const ag_layer_spec *kind = main_kind(s);
    for (const ag_gguf_key *k = s->family->gguf.keys; k && k->gguf; k++) {
        if (!strcmp(k->gguf, "attention.scale")) return 1;
    }
    const float default_scale =
        s->family->gguf.scale ? s->family->gguf.scale(s) : 1 / sqrtf((float)kind->head_dim);
    return kind->scale / default_scale;
}
