/* SPDX-License-Identifier: Apache-2.0 */
#include "models/config.h"

#include "core/fail.h"
#include "formats/json.h"
#include "formats/recognise.h"
#include "models/families/family.h"
#include "models/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 20 };

/* ---- the family ---- */

/* Returns the family's architecture that matches either name, or NULL. */
static const char *name_of(const ag_family *f, const char *architecture, const char *model_type) {
    for (size_t i = 0; i < AG_FAMILY_NAMES && f->names[i].architecture; i++) {
        if (architecture && !strcmp(f->names[i].architecture, architecture)) {
            return f->names[i].architecture;
        }
        if (model_type && !strcmp(f->names[i].model_type, model_type)) {
            return f->names[i].architecture;
        }
    }
    return NULL;
}

static const ag_family *find_named(const char *architecture, const char *model_type,
                                   const char **spelling) {
    const ag_family *f;
    for (size_t i = 0; (f = ag_family_at(i)); i++) {
        *spelling = name_of(f, architecture, model_type);
        if (*spelling) return f;
    }
    return NULL;
}

/* Writes a list such as "LlamaForCausalLM, MistralForCausalLM". */
static const char *known_architectures(char *buf, size_t cap) {
    const ag_family *f;
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; (f = ag_family_at(i)); i++) {
        for (size_t k = 0; k < AG_FAMILY_NAMES && f->names[k].architecture && at < cap; k++) {
            at += (size_t)snprintf(buf + at, cap - at, "%s%s", at ? ", " : "",
                                   f->names[k].architecture);
        }
    }
    return buf;
}

/* Fails for a name of no family: an architecture or a model_type. */
static ag_status unknown_name(const ag_config_reader *r, const char *what, const char *name) {
    static const char *const latent[] = {"Deepseek", "deepseek", "Glm4MoeLite", "glm4_moe_lite"};
    char known[512];
    for (size_t i = 0; i < sizeof latent / sizeof latent[0]; i++) {
        if (strncmp(name, latent[i], strlen(latent[i])) != 0) continue;
        return AG_FAIL(r->err, UNSUPPORTED,
                       "%s: %s \"%.80s\" has latent attention, which is not supported", r->where,
                       what, name);
    }
    return AG_FAIL(r->err, UNSUPPORTED, "%s: unknown %s \"%.80s\"; known%s: %s", r->where, what,
                   name, strcmp(what, "architecture") ? " architectures" : "",
                   known_architectures(known, sizeof known));
}

/* Finds the family by `architectures` or, if that is absent, by `model_type`. */
static ag_status find_family(const ag_config_reader *r, ag_model_spec *s) {
    const json_t *list = ag_config_value(r, "architectures");
    const char *type = json_string_value(ag_config_value(r, "model_type"));
    if (list && !json_is_array(list)) {
        return AG_FAIL(r->err, FORMAT, "%s: architectures is not a list", r->where);
    }
    for (size_t i = 0; i < json_array_size(list) && !s->family; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        s->family = name ? find_named(name, NULL, &s->architecture) : NULL;
    }
    if (s->family) return AG_OK;
    if (json_array_size(list) > 0) {
        const char *name = json_string_value(json_array_get(list, 0));
        return unknown_name(r, "architecture", name ? name : "?");
    }
    if (!type) {
        return AG_FAIL(r->err, FORMAT, "%s: has neither architectures nor model_type", r->where);
    }
    s->family = find_named(NULL, type, &s->architecture);
    if (s->family) return AG_OK;
    return unknown_name(r, "model_type", type);
}

static bool is_spelling_of(ag_activation activation, const char *name) {
    if (activation == AG_ACTIVATION_GELU_TANH) return !strcmp(name, "gelu_pytorch_tanh");
    return !strcmp(name, "silu") || !strcmp(name, "swish");
}

static ag_status check_supported(const ag_config_reader *r, const ag_family *f) {
    AG_TRY(ag_recognise_quantised(r->object, r->where, r->err));
    const bool silu = f->activation == AG_ACTIVATION_SILU;
    const char *key = silu ? "hidden_act" : "hidden_activation";
    const json_t *act = ag_config_value(r, key);
    const char *name = json_string_value(act);
    if (!act || (name && is_spelling_of(f->activation, name))) return AG_OK;
    return AG_FAIL(r->err, UNSUPPORTED, "%s: %s is \"%.40s\"; known: %s", r->where, key,
                   name ? name : "?", silu ? "silu" : "gelu_pytorch_tanh");
}

/* ---- sizes ---- */

static void read_sizes(ag_config_reader *r, ag_layer_spec *plain, ag_model_spec *s) {
    const ag_config_defaults *d = &s->family->defaults;
    s->vocab_size = d->vocab_size;
    s->hidden_size = d->hidden_size;
    s->intermediate_size = d->intermediate_size;
    s->n_layers = d->n_layers;
    s->max_positions = d->max_positions;
    s->tie_word_embeddings = d->tie_word_embeddings;
    plain->n_heads = d->n_heads;
    plain->head_dim = d->head_dim;
    double eps = d->norm_eps != 0 ? d->norm_eps : 1e-6;
    ag_config_size(r, "vocab_size", 1 << 24, &s->vocab_size);
    ag_config_size(r, "hidden_size", MAX_WIDTH, &s->hidden_size);
    ag_config_size(r, "intermediate_size", 1 << 22, &s->intermediate_size);
    ag_config_size(r, "num_hidden_layers", AG_MAX_LAYERS, &s->n_layers);
    ag_config_size(r, "num_attention_heads", 1 << 14, &plain->n_heads);
    ag_config_size(r, "max_position_embeddings", INT32_MAX, &s->max_positions);
    ag_config_real(r, "rms_norm_eps", 1e-30, 1, &eps);
    ag_config_bool(r, "tie_word_embeddings", &s->tie_word_embeddings);
    s->norm_eps = (float)eps;
}

/* Reads the sizes of heads, whose defaults depend on other sizes, and checks them. */
static ag_status read_heads(ag_config_reader *r, ag_layer_spec *plain, const ag_model_spec *s) {
    const uint32_t n_kv_heads = s->family->defaults.n_kv_heads;
    bool absent = !json_object_get(r->object, "num_key_value_heads");
    plain->n_kv_heads = absent && n_kv_heads ? n_kv_heads : plain->n_heads;
    ag_config_size(r, "num_key_value_heads", 1 << 14, &plain->n_kv_heads);
    ag_config_size(r, "head_dim", 1 << 14, &plain->head_dim);
    AG_TRY(r->status);
    if (!plain->head_dim && s->hidden_size % plain->n_heads != 0) {
        return AG_FAIL(r->err, FORMAT,
                       "%s: hidden_size %u is not a multiple of num_attention_heads %u, and "
                       "head_dim is missing",
                       r->where, s->hidden_size, plain->n_heads);
    }
    if (!plain->head_dim) plain->head_dim = s->hidden_size / plain->n_heads;
    if (plain->n_heads % plain->n_kv_heads != 0) {
        return AG_FAIL(r->err, FORMAT,
                       "%s: num_attention_heads %u is not a multiple of num_key_value_heads %u",
                       r->where, plain->n_heads, plain->n_kv_heads);
    }
    if (plain->head_dim % 2 != 0) {
        return AG_FAIL(r->err, FORMAT, "%s: head_dim %u is odd", r->where, plain->head_dim);
    }
    if (plain->n_heads > MAX_WIDTH / plain->head_dim) {
        return AG_FAIL(r->err, FORMAT, "%s: %u heads of %u exceed %d values", r->where,
                       plain->n_heads, plain->head_dim, MAX_WIDTH);
    }
    plain->scale = 1.0f / sqrtf((float)plain->head_dim);
    return AG_OK;
}

/* Reads the rotary table of all layers. Families with a table for each layer type read theirs. */
static ag_status read_rope(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    bool found;
    const ag_config_defaults *d = &s->family->defaults;
    const double share = d->rotary_share != 0 ? d->rotary_share : 1;
    s->n_ropes = 1;
    s->ropes[0] = (ag_rope_spec){.theta = d->rope_theta,
                                 .n_rotated = (uint32_t)(plain->head_dim * share) / 2 * 2};
    ag_config_real(r, "rope_theta", 1, 1e30, &s->ropes[0].theta);
    AG_TRY(ag_config_rope_of(r, NULL, s->max_positions, plain->head_dim, &s->ropes[0], &found));
    bool is_partial = d->rotary_share != 0 || s->ropes[0].scaling.type == AG_ROPE_PROPORTIONAL;
    ag_config_bool(r, AG_CONFIG_PARTIAL_ROTARY, &is_partial);
    if (is_partial || s->ropes[0].n_rotated == plain->head_dim) return r->status;
    if (s->ropes[0].scaling.type == AG_ROPE_DEFAULT) {
        s->ropes[0].n_rotated = plain->head_dim;
        return r->status;
    }
    return AG_FAIL(r->err, UNSUPPORTED,
                   "%s: partial_rotary_factor is not supported with rope type %s", r->where,
                   ag_rope_type_name(s->ropes[0].scaling.type));
}

/* ---- token ids ---- */

/* Returns a token id, or -1 for an id outside the vocabulary and after a failure. */
static int32_t read_id(ag_config_reader *r, const char *key, const json_t *v, uint32_t vocab_size) {
    if (!json_is_integer(v)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is not a token id", r->where, key);
        return -1;
    }
    json_int_t id = json_integer_value(v);
    return id >= 0 && id < (json_int_t)vocab_size ? (int32_t)id : -1;
}

static void add_eos(ag_config_reader *r, int32_t id, ag_model_spec *s) {
    for (size_t i = 0; i < s->n_eos; i++) {
        if (s->eos_ids[i] == id) return;
    }
    if (id < 0 || r->status != AG_OK) return;
    if (s->n_eos < AG_MAX_EOS) s->eos_ids[s->n_eos++] = id;
    else {
        r->status =
            AG_FAIL(r->err, LIMIT, "%s: eos_token_id: more than %d ids", r->where, AG_MAX_EOS);
    }
}

static ag_status read_ids(ag_config_reader *r, ag_model_spec *s) {
    static const char bos_key[] = "bos_token_id", eos_key[] = "eos_token_id";
    const json_t *bos = ag_config_value(r, bos_key), *eos = ag_config_value(r, eos_key);
    if (json_is_array(bos)) bos = json_array_get(bos, 0);
    if (bos) s->bos_id = read_id(r, bos_key, bos, s->vocab_size);
    for (size_t i = 0; i < json_array_size(eos); i++) {
        add_eos(r, read_id(r, eos_key, json_array_get(eos, i), s->vocab_size), s);
    }
    if (eos && !json_is_array(eos)) add_eos(r, read_id(r, eos_key, eos, s->vocab_size), s);
    return r->status;
}

/* Reads token ids of all objects. The last bos id counts; eos ids are joined. */
static ag_status read_all_ids(ag_config_reader *const objects[], size_t n, ag_model_spec *s) {
    const ag_config_defaults *d = &s->family->defaults;
    bool bos = false, eos = false;
    for (size_t i = 0; i < n; i++) {
        bos = bos || json_object_get(objects[i]->object, "bos_token_id");
        eos = eos || json_object_get(objects[i]->object, "eos_token_id");
    }
    s->bos_id = bos || d->bos_id >= (int64_t)s->vocab_size ? -1 : d->bos_id;
    if (!eos && d->eos_id < (int64_t)s->vocab_size) add_eos(objects[0], d->eos_id, s);
    for (size_t i = 0; i < n; i++) AG_TRY(read_ids(objects[i], s));
    return AG_OK;
}

/* ---- all of it ---- */

/* Enters `text_config`, where multimodal models have their text model. */
static ag_status enter_text_config(ag_config_reader *r) {
    const json_t *text;
    AG_TRY(ag_config_object(r, "text_config", &text));
    if (text) r->object = text;
    return AG_OK;
}

static ag_status set_layers(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    AG_TRY(s->family->describe ? s->family->describe(r, plain, s)
                               : ag_spec_set_all(s, plain, r->err));
    for (uint32_t k = 0; k < s->n_kinds; k++) {
        if (s->kinds[k].mixer == AG_MIXER_ATTENTION) return AG_OK;
    }
    AG_TRY(r->status);
    return AG_FAIL(r->err, UNSUPPORTED, "%s: layer_types has no layer with attention", r->where);
}

static ag_status read_all(ag_config_reader *r, ag_config_reader *generation, ag_model_spec *out) {
    ag_model_spec s = {.embedding_scale = 1, .bos_id = -1};
    ag_layer_spec plain = {0};
    ag_config_reader top = *r;
    ag_config_reader *const objects[] = {&top, r, generation};
    AG_TRY(find_family(r, &s));
    AG_TRY(ag_recognise_quantised(top.object, top.where, top.err));
    AG_TRY(enter_text_config(r));
    AG_TRY(check_supported(r, s.family));
    plain.activation = s.family->activation;
    read_sizes(r, &plain, &s);
    AG_TRY(read_heads(r, &plain, &s));
    AG_TRY(read_rope(r, &plain, &s));
    AG_TRY(set_layers(r, &plain, &s));
    AG_TRY(r->status);
    AG_TRY(read_all_ids(objects, sizeof objects / sizeof objects[0], &s));
    *out = s;
    return AG_OK;
}

/* source: the source of the configuration; NULL: it is a config.json. */
static ag_status parse(const ag_weight_source *source, const ag_config_text *config,
                       const ag_config_text *generation, ag_model_spec *out, ag_error *err) {
    json_t *root = NULL, *more = NULL;
    ag_status st = ag_json_parse(config->text, config->n, config->name, &root, err);
    if (st == AG_OK && source && ag_gguf_is_config(root)) {
        json_t *metadata = root;
        st = ag_gguf_config(source, metadata, config->name, &root, err);
        json_decref(metadata);
    }
    if (st == AG_OK && generation) {
        st = ag_json_parse(generation->text, generation->n, generation->name, &more, err);
    }
    if (st == AG_OK) {
        ag_config_reader r = {root, config->name, err, AG_OK};
        ag_config_reader g = {more, generation ? generation->name : "", err, AG_OK};
        st = read_all(&r, &g, out);
    }
    json_decref(root);
    json_decref(more);
    return st;
}

ag_status ag_spec_parse(const ag_config_text *config, const ag_config_text *generation,
                        ag_model_spec *out, ag_error *err) {
    return parse(NULL, config, generation, out, err);
}

ag_status ag_spec_read(const ag_weight_source *source, ag_model_spec *out, ag_error *err) {
    ag_source_text config = {0}, more = {0};
    ag_status st = ag_source_read_text(source, AG_SOURCE_CONFIG, &config, err);
    if (st == AG_OK) st = ag_source_read_text(source, AG_SOURCE_GENERATION_CONFIG, &more, err);
    if (st == AG_OK) {
        const ag_config_text c = {config.text, config.n, config.name};
        const ag_config_text g = {more.text, more.n, more.name};
        st = parse(source, &c, more.text ? &g : NULL, out, err);
    }
    ag_source_text_free(&config);
    ag_source_text_free(&more);
    return st;
}
