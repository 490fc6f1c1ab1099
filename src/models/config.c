/* SPDX-License-Identifier: Apache-2.0 */
#include "models/config.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "formats/file.h"
#include "formats/json.h"
#include "formats/recognise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 1 << 24, MAX_WIDTH = 1 << 20 };

/* One line for each architecture: how it is spelled and what its absent keys mean. */
typedef struct family {
    const char *architecture, *model_type;
    uint32_t intermediate_size, n_kv_heads /* 0: as many as heads */, max_position_embeddings;
    uint32_t sliding_window;
    bool has_bias_keys;
} family;

static const family families[] = {
    {"LlamaForCausalLM", "llama", 11008, 0, 2048, 0, true},
    {"MistralForCausalLM", "mistral", 14336, 8, 131072, 4096, false},
};
static const char known_rope_types[] = "default, linear, llama3";

/* Reads keys of one object. The first failure sticks, so that a list of reads needs one check. An
 * absent key and a null both leave *out as it was. */
typedef struct reader {
    const json_t *object;
    const char *where;
    ag_error *err;
    ag_status status;
} reader;

static const json_t *value_of(const reader *r, const char *key) {
    const json_t *v = json_object_get(r->object, key);
    return json_is_null(v) ? NULL : v;
}

static bool read_real(reader *r, const char *key, double low, double high, double *out) {
    const json_t *v = value_of(r, key);
    if (r->status != AG_OK || !v) return false;
    double x = json_number_value(v);
    if (!json_is_number(v)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is not a number", r->where, key);
    } else if (!(x >= low && x <= high)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is %g, not within %g and %g", r->where, key, x,
                            low, high);
    } else *out = x;
    return r->status == AG_OK;
}

/* A whole number of [1, max]; 2048.0 is one too. */
static bool read_size(reader *r, const char *key, uint32_t max, uint32_t *out) {
    double x = *out;
    if (!read_real(r, key, 1, max, &x)) return false;
    if (x != floor(x)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is %g, not a whole number", r->where, key, x);
        return false;
    }
    *out = (uint32_t)x;
    return true;
}

static void read_bool(reader *r, const char *key, bool *out) {
    const json_t *v = value_of(r, key);
    if (r->status != AG_OK || !v) return;
    if (json_is_boolean(v)) *out = json_is_true(v);
    else r->status = AG_FAIL(r->err, FORMAT, "%s: %s is not true or false", r->where, key);
}

/* ---- what the model is ---- */

static const family *family_named(const char *architecture, const char *model_type) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const family *f = &families[i];
        if (architecture && strcmp(f->architecture, architecture) == 0) return f;
        if (model_type && strcmp(f->model_type, model_type) == 0) return f;
    }
    return NULL;
}

/* "LlamaForCausalLM, MistralForCausalLM" into buf. */
static const char *known_architectures(char *buf, size_t cap) {
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < sizeof families / sizeof families[0] && at < cap; i++) {
        at += (size_t)snprintf(buf + at, cap - at, "%s%s", i ? ", " : "", families[i].architecture);
    }
    return buf;
}

/* The list of architectures decides; without one, model_type does. */
static ag_status find_family(const reader *r, const family **out) {
    const json_t *list = value_of(r, "architectures");
    const char *type = json_string_value(value_of(r, "model_type"));
    if (list && !json_is_array(list)) {
        return AG_FAIL(r->err, FORMAT, "%s: architectures is not a list", r->where);
    }
    char known[200];
    *out = NULL;
    for (size_t i = 0; i < json_array_size(list) && !*out; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        *out = name ? family_named(name, NULL) : NULL;
    }
    if (*out) return AG_OK;
    if (json_array_size(list) > 0) {
        const char *name = json_string_value(json_array_get(list, 0));
        return AG_FAIL(r->err, UNSUPPORTED, "%s: unknown architecture \"%.80s\"; known: %s",
                       r->where, name ? name : "?", known_architectures(known, sizeof known));
    }
    if (!type) {
        return AG_FAIL(r->err, FORMAT, "%s: has neither architectures nor model_type", r->where);
    }
    *out = family_named(NULL, type);
    if (*out) return AG_OK;
    return AG_FAIL(r->err, UNSUPPORTED, "%s: unknown model_type \"%.80s\"; known architectures: %s",
                   r->where, type, known_architectures(known, sizeof known));
}

static ag_status check_supported(const reader *r) {
    AG_TRY(ag_recognise_quantised(r->object, r->where, r->err));
    const json_t *act = value_of(r, "hidden_act");
    const char *name = json_string_value(act);
    if (act && (!name || (strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0))) {
        return AG_FAIL(r->err, UNSUPPORTED, "%s: hidden_act is \"%.40s\"; known: silu", r->where,
                       name ? name : "?");
    }
    return AG_OK;
}

static void read_shape(reader *r, const family *f, ag_llama_config *c) {
    c->architecture = f->architecture;
    c->vocab_size = 32000;
    c->hidden_size = 4096;
    c->intermediate_size = f->intermediate_size;
    c->n_layers = 32;
    c->n_heads = 32;
    c->max_position_embeddings = f->max_position_embeddings;
    double eps = 1e-6;
    read_size(r, "vocab_size", 1 << 24, &c->vocab_size);
    read_size(r, "hidden_size", MAX_WIDTH, &c->hidden_size);
    read_size(r, "intermediate_size", 1 << 22, &c->intermediate_size);
    read_size(r, "num_hidden_layers", 1 << 14, &c->n_layers);
    read_size(r, "num_attention_heads", 1 << 14, &c->n_heads);
    read_size(r, "max_position_embeddings", INT32_MAX, &c->max_position_embeddings);
    read_real(r, "rms_norm_eps", 1e-30, 1, &eps);
    read_bool(r, "tie_word_embeddings", &c->tie_word_embeddings);
    if (f->has_bias_keys) {
        read_bool(r, "attention_bias", &c->attention_bias);
        read_bool(r, "mlp_bias", &c->mlp_bias);
    }
    c->rms_norm_eps = (float)eps;
}

/* The sizes that follow from other sizes, and whether they fit each other. */
static ag_status read_heads(reader *r, const family *f, ag_llama_config *c) {
    bool absent = !json_object_get(r->object, "num_key_value_heads");
    c->n_kv_heads = absent && f->n_kv_heads ? f->n_kv_heads : c->n_heads;
    read_size(r, "num_key_value_heads", 1 << 14, &c->n_kv_heads);
    bool has_head_dim = read_size(r, "head_dim", 1 << 14, &c->head_dim);
    AG_TRY(r->status);
    if (!has_head_dim && c->hidden_size % c->n_heads != 0) {
        return AG_FAIL(r->err, FORMAT,
                       "%s: hidden_size %u is not a multiple of num_attention_heads %u, and there "
                       "is no head_dim",
                       r->where, c->hidden_size, c->n_heads);
    }
    if (!has_head_dim) c->head_dim = c->hidden_size / c->n_heads;
    if (c->n_heads % c->n_kv_heads != 0) {
        return AG_FAIL(r->err, FORMAT,
                       "%s: num_attention_heads %u is not a multiple of num_key_value_heads %u",
                       r->where, c->n_heads, c->n_kv_heads);
    }
    if (c->head_dim % 2 != 0) {
        return AG_FAIL(r->err, FORMAT, "%s: head_dim %u is odd", r->where, c->head_dim);
    }
    if (c->n_heads > MAX_WIDTH / c->head_dim) {
        return AG_FAIL(r->err, FORMAT, "%s: %u heads of %u are wider than %d", r->where, c->n_heads,
                       c->head_dim, MAX_WIDTH);
    }
    return AG_OK;
}

static ag_status read_sliding_window(reader *r, const family *f, ag_llama_config *c) {
    if (f->sliding_window == 0) return AG_OK;
    if (!json_object_get(r->object, "sliding_window")) c->sliding_window = f->sliding_window;
    read_size(r, "sliding_window", INT32_MAX, &c->sliding_window);
    AG_TRY(r->status);
    if (c->sliding_window > 0 && c->sliding_window < c->max_position_embeddings) {
        c->max_position_embeddings = c->sliding_window;
    }
    return AG_OK;
}

/* ---- rotary positions ---- */

const char *ag_rope_type_name(ag_rope_type type) {
    return type == AG_ROPE_LINEAR ? "linear" : type == AG_ROPE_LLAMA3 ? "llama3" : "none";
}

/* rope_type wins over its old spelling, type; neither means no scaling. */
static ag_status read_rope_type(const reader *r, ag_rope_type *out) {
    const json_t *v = value_of(r, "rope_type");
    if (!v) v = value_of(r, "type");
    *out = AG_ROPE_DEFAULT;
    if (!v) return AG_OK;
    const char *name = json_string_value(v);
    if (name && strcmp(name, "default") == 0) return AG_OK;
    if (name && strcmp(name, "linear") == 0) *out = AG_ROPE_LINEAR;
    else if (name && strcmp(name, "llama3") == 0) *out = AG_ROPE_LLAMA3;
    else {
        return AG_FAIL(r->err, UNSUPPORTED, "%s: unknown rope type \"%.40s\"; known: %s", r->where,
                       name ? name : "?", known_rope_types);
    }
    return AG_OK;
}

static void require_factor(reader *r, const char *key, double *out) {
    if (!read_real(r, key, 1e-6, 1e6, out) && r->status == AG_OK) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is missing", r->where, key);
    }
}

static ag_status read_scaling(reader *r, const reader *top, uint32_t trained, ag_rope_scaling *s) {
    AG_TRY(read_rope_type(r, &s->type));
    if (s->type == AG_ROPE_DEFAULT) return AG_OK;
    require_factor(r, "factor", &s->factor);
    if (s->type == AG_ROPE_LINEAR) return r->status;
    require_factor(r, "low_freq_factor", &s->low_freq_factor);
    require_factor(r, "high_freq_factor", &s->high_freq_factor);
    /* Some files keep the original length beside the object instead of in it. */
    static const char key[] = "original_max_position_embeddings";
    uint32_t original = trained;
    reader outer = {top->object, top->where, top->err, r->status};
    bool beside = read_size(&outer, key, INT32_MAX, &original);
    AG_TRY(outer.status);
    if (!beside) read_size(r, key, INT32_MAX, &original);
    AG_TRY(r->status);
    s->original_max_position_embeddings = original;
    if (s->high_freq_factor > s->low_freq_factor) return AG_OK;
    return AG_FAIL(r->err, FORMAT, "%s: high_freq_factor %g is not above low_freq_factor %g",
                   r->where, s->high_freq_factor, s->low_freq_factor);
}

static ag_status refuse_partial_rotation(reader *r) {
    double part = 1;
    read_real(r, "partial_rotary_factor", 0, 1, &part);
    if (r->status != AG_OK || part == 1) return r->status;
    return AG_FAIL(r->err, UNSUPPORTED, "%s: partial_rotary_factor is %g; only 1 is supported",
                   r->where, part);
}

/* An object that says something: {} and null say as little as no key at all. */
static ag_status find_object(const reader *r, const char *key, const json_t **out) {
    const json_t *v = value_of(r, key);
    *out = json_object_size(v) > 0 ? v : NULL;
    if (!v || json_is_object(v)) return AG_OK;
    return AG_FAIL(r->err, FORMAT, "%s: %s is not an object", r->where, key);
}

static ag_status read_rope(reader *r, uint32_t trained, ag_llama_config *c) {
    c->rope_theta = 10000;
    read_real(r, "rope_theta", 1, 1e30, &c->rope_theta);
    AG_TRY(refuse_partial_rotation(r));
    const json_t *old = NULL, *current = NULL;
    AG_TRY(find_object(r, "rope_scaling", &old));
    AG_TRY(find_object(r, "rope_parameters", &current));
    if (!old && !current) return AG_OK;
    char where[320];
    snprintf(where, sizeof where, "%.280s: %s", r->where, old ? "rope_scaling" : "rope_parameters");
    reader inner = {old ? old : current, where, r->err, AG_OK};
    read_real(&inner, "rope_theta", 1, 1e30, &c->rope_theta);
    AG_TRY(refuse_partial_rotation(&inner));
    return read_scaling(&inner, r, trained, &c->rope_scaling);
}

/* ---- token ids ---- */

/* A token id, -1 for one that cannot occur, or a failure. */
static int32_t read_id(reader *r, const char *key, const json_t *v, uint32_t vocab_size) {
    if (!json_is_integer(v)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is not a token id", r->where, key);
        return -1;
    }
    json_int_t id = json_integer_value(v);
    return id >= 0 && id < (json_int_t)vocab_size ? (int32_t)id : -1;
}

static void add_eos(reader *r, int32_t id, ag_llama_config *c) {
    for (size_t i = 0; i < c->n_eos; i++) {
        if (c->eos_ids[i] == id) return;
    }
    if (id < 0 || r->status != AG_OK) return;
    if (c->n_eos < AG_MAX_EOS) c->eos_ids[c->n_eos++] = id;
    else {
        r->status =
            AG_FAIL(r->err, LIMIT, "%s: eos_token_id: more than %d ids", r->where, AG_MAX_EOS);
    }
}

static ag_status read_ids(reader *r, ag_llama_config *c) {
    static const char bos_key[] = "bos_token_id", eos_key[] = "eos_token_id";
    const json_t *bos = value_of(r, bos_key), *eos = value_of(r, eos_key);
    if (json_is_array(bos)) bos = json_array_get(bos, 0);
    if (bos) c->bos_id = read_id(r, bos_key, bos, c->vocab_size);
    for (size_t i = 0; i < json_array_size(eos); i++) {
        add_eos(r, read_id(r, eos_key, json_array_get(eos, i), c->vocab_size), c);
    }
    if (eos && !json_is_array(eos)) add_eos(r, read_id(r, eos_key, eos, c->vocab_size), c);
    return r->status;
}

static bool says(const json_t *config, const json_t *generation, const char *key) {
    return json_object_get(config, key) || json_object_get(generation, key);
}

static ag_status read_all_ids(reader *config, reader *generation, ag_llama_config *c) {
    bool bos = says(config->object, generation->object, "bos_token_id");
    bool eos = says(config->object, generation->object, "eos_token_id");
    c->bos_id = bos || c->vocab_size < 2 ? -1 : 1;
    if (!eos && c->vocab_size > 2) c->eos_ids[c->n_eos++] = 2;
    AG_TRY(read_ids(config, c));
    return read_ids(generation, c);
}

/* ---- the files ---- */

static ag_status read_config(reader *r, reader *generation, ag_llama_config *out) {
    ag_llama_config c = {0};
    const family *f;
    AG_TRY(find_family(r, &f));
    AG_TRY(check_supported(r));
    read_shape(r, f, &c);
    AG_TRY(read_heads(r, f, &c));
    AG_TRY(read_rope(r, c.max_position_embeddings, &c));
    AG_TRY(read_sliding_window(r, f, &c));
    AG_TRY(read_all_ids(r, generation, &c));
    *out = c;
    return AG_OK;
}

ag_status ag_llama_config_parse(const ag_config_text *config, const ag_config_text *generation,
                                ag_llama_config *out, ag_error *err) {
    json_t *root = NULL, *more = NULL;
    ag_status st = ag_json_parse(config->text, config->n, config->name, &root, err);
    if (st == AG_OK && generation) {
        st = ag_json_parse(generation->text, generation->n, generation->name, &more, err);
    }
    if (st == AG_OK) {
        reader r = {root, config->name, err, AG_OK};
        reader g = {more, generation ? generation->name : "", err, AG_OK};
        st = read_config(&r, &g, out);
    }
    json_decref(root);
    json_decref(more);
    return st;
}

ag_status ag_llama_config_load(const char *dir, ag_llama_config *out, ag_error *err) {
    char *path = ag_path_join(dir, "config.json");
    char *more_path = ag_path_join(dir, "generation_config.json");
    char *text = NULL, *more = NULL;
    size_t n = 0, n_more = 0;
    ag_status st = path && more_path ? AG_OK : AG_FAIL(err, NOMEM, "no memory for a path");
    if (st == AG_OK) st = ag_file_read_all(path, MAX_CONFIG_BYTES, &text, &n, err);
    if (st != AG_OK) goto done;
    ag_error ignored;
    st = ag_file_read_all(more_path, MAX_CONFIG_BYTES, &more, &n_more, &ignored);
    if (st != AG_OK && st != AG_NOT_FOUND) {
        if (err) *err = ignored;
        goto done;
    }
    ag_config_text config = {text, n, path}, generation = {more, n_more, more_path};
    st = ag_llama_config_parse(&config, more ? &generation : NULL, out, err);
done:
    ag_free(text);
    ag_free(more);
    ag_free(path);
    ag_free(more_path);
    return st;
}
