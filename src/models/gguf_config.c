/* SPDX-License-Identifier: Apache-2.0 */
#include "models/gguf_config.h"

#include "core/fail.h"
#include "models/families/family.h"

#include <stdio.h>
#include <string.h>

/* Tokens that end an answer, whether or not a file's keys name them. */
static const char *const ends_of_text[] = {
    "<|eot_id|>", "<|im_end|>",      "<|end|>",    "<end_of_turn>", "<|endoftext|>",
    "<|eom_id|>", "<|end_of_text|>", "<|return|>", "<turn|>",       "<EOT>",
};

/* ---- values ---- */

static const json_t *largest(const json_t *v) {
    if (!json_is_array(v)) return v;
    const json_t *best = json_array_get(v, 0);
    for (size_t i = 1; i < json_array_size(v); i++) {
        const json_t *x = json_array_get(v, i);
        if (json_number_value(x) > json_number_value(best)) best = x;
    }
    return best;
}

/* Sets a key to a copy of v. Does nothing if v is NULL. */
static bool put(json_t *object, const char *key, const json_t *v) {
    return !v || json_object_set_new(object, key, json_deep_copy(v)) == 0;
}

static bool put_new(json_t *object, const char *key, json_t *v) {
    return json_object_set_new(object, key, v) == 0;
}

static ag_status no_memory(const ag_gguf_reader *r) {
    return AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
}

/* ---- groups of keys ---- */

static const char long_factors[] = "rope_factors_long.weight";

static bool put_keys(const ag_gguf_reader *r, const ag_gguf_key *more, json_t *config) {
    bool ok = true;
    for (; more && more->gguf; more++) {
        ok = ok && put(config, more->config, ag_gguf_value(r, more->gguf));
    }
    for (const ag_gguf_key *k = ag_gguf_keys; k->gguf; k++) {
        ok = ok && put(config, k->config, largest(ag_gguf_value(r, k->gguf)));
    }
    /* A window of 0 means no window. */
    const json_t *window = json_object_get(config, "sliding_window");
    if (window && json_number_value(window) == 0)
        ok = put_new(config, "sliding_window", json_null());
    return ok;
}

/* Reads the divisors of longrope, a tensor, into a list. *out is NULL without memory. */
static ag_status read_divisors(const ag_gguf_reader *r, const char *name, json_t **out) {
    enum { MAX_DIVISORS = AG_MAX_ROPE_DIVISORS };
    float values[MAX_DIVISORS];
    const ag_source_tensor *t;
    AG_TRY(ag_source_require(r->source, name, &t, r->err));
    const size_t n = ag_shape_numel(&t->shape);
    if (t->dtype != AG_F32 || n > MAX_DIVISORS) {
        return AG_FAIL(r->err, SHAPE, "%s: tensor %s is not a list of up to %d f32 values",
                       r->where, name, MAX_DIVISORS);
    }
    AG_TRY(ag_source_read(r->source, t, 0, values, n * sizeof *values, r->err));
    *out = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(*out, json_real((double)values[i]));
    return AG_OK;
}

static ag_status complete_longrope(const ag_gguf_reader *r, json_t *scaling) {
    json_t *lists[2] = {NULL, NULL};
    AG_TRY(read_divisors(r, "rope_factors_short.weight", &lists[0]));
    ag_status st = read_divisors(r, long_factors, &lists[1]);
    if (st != AG_OK) {
        json_decref(lists[0]);
        return st;
    }
    bool ok = put_new(scaling, "short_factor", lists[0]);
    ok = put_new(scaling, "long_factor", lists[1]) && ok;
    if (!json_object_get(scaling, "attention_factor")) {
        ok = put_new(scaling, "attention_factor", json_real(1)) && ok;
    }
    return ok ? AG_OK : no_memory(r);
}

/* Returns the name of a file's rope scaling, or NULL. Files with divisors for long texts need not
 * name it, and old files have only a factor. */
static const char *scaling_type(const ag_gguf_reader *r) {
    const char *name = json_string_value(ag_gguf_value(r, "rope.scaling.type"));
    if (ag_gguf_has(r, long_factors)) return "longrope";
    if (name) return strcmp(name, "none") ? name : NULL;
    const bool has_factor =
        ag_gguf_value(r, "rope.scale_linear") || ag_gguf_value(r, "rope.scaling.factor");
    return has_factor ? "linear" : NULL;
}

static bool put_scaling(const ag_gguf_reader *r, json_t *config) {
    const char *name = scaling_type(r);
    if (!name) return true;
    json_t *scaling = json_object();
    bool ok = put_new(scaling, "rope_type", json_string(name)) &&
              put(scaling, "factor", ag_gguf_value(r, "rope.scale_linear")) &&
              put(scaling, "attention_factor", ag_gguf_value(r, "rope.scaling.yarn_attn_factor"));
    if (ag_gguf_value(r, "rope.scaling.yarn_log_multiplier")) {
        ok = put_new(scaling, "mscale", json_real(1)) && ok;
    }
    for (const ag_gguf_key *k = ag_gguf_scaling_keys; k->gguf; k++) {
        ok = ok && put(scaling, k->config, ag_gguf_value(r, k->gguf));
    }
    return put_new(config, "rope_scaling", scaling) && ok;
}

/* Sets the share of a head that rotates. The 0.5 makes the truncation to an integer exact. */
static bool put_rotary_share(const ag_gguf_reader *r, json_t *config) {
    const double n = json_number_value(ag_gguf_value(r, "rope.dimension_count"));
    const double heads = json_number_value(json_object_get(config, "num_attention_heads"));
    const double hidden = json_number_value(json_object_get(config, "hidden_size"));
    double width = json_number_value(json_object_get(config, "head_dim"));
    if (width == 0 && heads > 0) width = hidden / heads;
    if (n <= 0 || width <= 0) return true;
    const double share = n == width ? 1 : (n + 0.5) / width;
    return put_new(config, "partial_rotary_factor", json_real(share)) &&
           put_new(config, AG_CONFIG_PARTIAL_ROTARY, json_true());
}

/* Sets the layers with a window: a list, or the period of layers without. */
static bool put_layer_types(const ag_gguf_reader *r, json_t *config) {
    const json_t *pattern = ag_gguf_value(r, "attention.sliding_window_pattern");
    if (!json_is_array(pattern)) return put(config, "sliding_window_pattern", pattern);
    json_t *types = json_array();
    bool ok = true;
    for (size_t i = 0; i < json_array_size(pattern); i++) {
        const json_t *v = json_array_get(pattern, i);
        const bool window = json_is_true(v) || json_number_value(v) != 0;
        const char *name = window ? "sliding_attention" : "full_attention";
        ok = ok && json_array_append_new(types, json_string(name)) == 0;
    }
    return put_new(config, "layer_types", types) && ok;
}

/* ---- the vocabulary ---- */

static bool is_special(const ag_source_vocabulary *v, size_t id, const char *text) {
    const ag_source_string *token = &v->tokens[id];
    return v->types && v->types[id] != AG_TOKEN_NORMAL && token->n == strlen(text) &&
           memcmp(token->text, text, token->n) == 0;
}

/* Returns the id of a special token; -1 if there is none. */
static int64_t find_special(const ag_source_vocabulary *v, const char *text) {
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (is_special(v, i, text)) return (int64_t)i;
    }
    return -1;
}

static bool ends_a_text(const ag_source_vocabulary *v, size_t id) {
    for (size_t i = 0; i < sizeof ends_of_text / sizeof ends_of_text[0]; i++) {
        if (is_special(v, id, ends_of_text[i])) return true;
    }
    return false;
}

/* Appends the id unless it is absent (negative) or `excluded`. */
static bool append_id(json_t *list, int64_t id, int64_t excluded) {
    return id < 0 || id == excluded || json_array_append_new(list, json_integer(id)) == 0;
}

/* In harmony <|return|> and <|call|> end an answer; <|end|> ends one of its messages. */
static bool put_vocabulary(const ag_source_vocabulary *v, json_t *config) {
    json_t *ends = json_array();
    const int64_t call = find_special(v, "<|call|>");
    const bool is_harmony = call >= 0 && find_special(v, "<|return|>") >= 0;
    const int64_t excluded = is_harmony ? find_special(v, "<|end|>") : -1;
    bool ok = append_id(ends, v->eos, excluded) && append_id(ends, v->eot, excluded) &&
              append_id(ends, v->eom, excluded);
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (ends_a_text(v, i)) ok = ok && append_id(ends, (int64_t)i, excluded);
    }
    if (is_harmony) ok = ok && append_id(ends, call, excluded);
    ok = put_new(config, "eos_token_id", ends) && ok;
    ok = put_new(config, "bos_token_id", v->bos < 0 ? json_null() : json_integer(v->bos)) && ok;
    return put_new(config, "vocab_size", json_integer((json_int_t)v->n_tokens)) && ok;
}

/* Without a vocabulary there are no special ids. */
static bool put_no_vocabulary(json_t *config) {
    return put_new(config, "eos_token_id", json_null()) &&
           put_new(config, "bos_token_id", json_null());
}

/* ---- all of it ---- */

static const ag_family *find_gguf_family(const char *architecture) {
    const ag_family *f;
    for (size_t i = 0; (f = ag_family_at(i)); i++) {
        for (size_t k = 0; k < AG_FAMILY_NAMES && f->gguf.architectures[k]; k++) {
            if (!strcmp(f->gguf.architectures[k], architecture)) return f;
        }
    }
    return NULL;
}

static ag_status unknown_architecture(const ag_gguf_reader *r) {
    char known[512] = "";
    const ag_family *f;
    size_t at = 0;
    for (size_t i = 0; (f = ag_family_at(i)); i++) {
        for (size_t k = 0; k < AG_FAMILY_NAMES && f->gguf.architectures[k]; k++) {
            if (at >= sizeof known) break;
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "",
                                   f->gguf.architectures[k]);
        }
    }
    return AG_FAIL(r->err, UNSUPPORTED,
                   "%s: general.architecture \"%.60s\" is not supported; known: %s", r->where,
                   r->architecture, known);
}

/* Sets the keys of biases. A file has no keys for them, only their tensors. */
static bool put_biases(const ag_gguf_reader *r, json_t *config) {
    static const char *const keys[][2] = {{"blk.0.attn_q.bias", "attention_bias"},
                                          {"blk.0.ffn_up.bias", "mlp_bias"}};
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        ok = ok && put_new(config, keys[i][1], json_boolean(ag_gguf_has(r, keys[i][0])));
    }
    return ok;
}

static ag_status fill(const ag_gguf_reader *r, const ag_family *family, json_t *config) {
    ag_source_vocabulary vocabulary;
    AG_TRY(ag_source_read_vocabulary(r->source, &vocabulary, r->err));
    const bool ok =
        put_new(config, "architectures", json_pack("[s]", family->names[0].architecture)) &&
        put_keys(r, family->gguf.keys, config) && put_scaling(r, config) &&
        put_rotary_share(r, config) && put_layer_types(r, config) && put_biases(r, config) &&
        /* the absence of an output tensor decides */
        put_new(config, "tie_word_embeddings", json_false()) &&
        (vocabulary.n_tokens ? put_vocabulary(&vocabulary, config) : put_no_vocabulary(config));
    ag_source_vocabulary_free(&vocabulary);
    if (!ok) return no_memory(r);
    if (ag_gguf_has(r, long_factors)) {
        AG_TRY(complete_longrope(r, json_object_get(config, "rope_scaling")));
    }
    return family->gguf.complete ? family->gguf.complete(r, config) : AG_OK;
}

bool ag_gguf_is_config(const json_t *config) {
    return json_object_get(config, "general.architecture") != NULL;
}

ag_status ag_gguf_config(const ag_weight_source *source, const json_t *metadata, const char *where,
                         json_t **out, ag_error *err) {
    ag_gguf_reader r = {source, metadata, NULL, where, err};
    r.architecture = json_string_value(json_object_get(metadata, "general.architecture"));
    *out = NULL;
    if (!r.architecture) {
        return AG_FAIL(err, FORMAT, "%s: general.architecture is not a string", where);
    }
    const ag_family *family = find_gguf_family(r.architecture);
    if (!family) return unknown_architecture(&r);
    json_t *config = json_object();
    ag_status st =
        config ? fill(&r, family, config) : AG_FAIL(err, NOMEM, "%s: configuration", where);
    if (st == AG_OK) *out = config;
    else json_decref(config);
    return st;
}
