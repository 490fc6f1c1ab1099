/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses types as llama.cpp does (github.com/ggml-org/llama.cpp, tools/quantize), so that a type's
 * name means the same in both: matrices get the file's type and the output matrix gets more bits.
 * q4_k_m also gives more bits to the value projections and the down projections of half of the
 * layers. */
#include "convert/out_model.h"

#include "core/fail.h"
#include "models/weight_types.h"

#include <stdio.h>
#include <string.h>

/* The numbers of general.file_type in ggml's gguf.md. */
static const struct file_type {
    const char *name;
    ag_dtype type;
    uint32_t number;
    bool is_mixed; /* some layers get more bits */
} file_types[] = {
    {"q4_0", AG_Q4_0, 2, false},   {"q4_1", AG_Q4_1, 3, false},  {"q5_0", AG_Q5_0, 8, false},
    {"q5_1", AG_Q5_1, 9, false},   {"q8_0", AG_Q8_0, 7, false},  {"q4_k", AG_Q4_K, 14, false},
    {"q4_k_m", AG_Q4_K, 15, true}, {"q5_k", AG_Q5_K, 16, false}, {"q6_k", AG_Q6_K, 18, false},
    {"f16", AG_F16, 1, false},     {"bf16", AG_BF16, 32, false}, {"f32", AG_F32, 0, false},
};
enum { N_FILE_TYPES = sizeof file_types / sizeof file_types[0] };

const char *ag_quantize_type_name(size_t i) { return i < N_FILE_TYPES ? file_types[i].name : NULL; }

static const struct file_type *find_type(const char *name) {
    for (size_t i = 0; name && i < N_FILE_TYPES; i++) {
        const char *a = file_types[i].name, *b = name;
        while (*a && (*b == *a || (*b >= 'A' && *b <= 'Z' && *b - 'A' + 'a' == *a))) a++, b++;
        if (!*a && !*b) return &file_types[i];
    }
    return NULL;
}

ag_status ag_file_type_number(const char *type, uint32_t *number, ag_error *err) {
    const struct file_type *f = find_type(type);
    if (f) {
        *number = f->number;
        return AG_OK;
    }
    char known[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < N_FILE_TYPES && used < sizeof known; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 file_types[i].name);
    }
    return AG_FAIL(err, INVALID, "unknown file type \"%.40s\"; known: %s", type ? type : "", known);
}

typedef struct choice {
    const ag_quantize_params *params;
    const struct file_type *file;
    const ag_out_model *model;
    bool tied; /* the embedding is also the output matrix */
} choice;

/* ---- one tensor ---- */

static bool ends_with(const char *name, const char *suffix) {
    const size_t n = strlen(name), k = strlen(suffix);
    return n >= k && !strcmp(name + n - k, suffix);
}

/* These tensors are small or are read element by element. */
static bool is_never_rounded(const ag_out_tensor *t) {
    static const char *const parts[] = {"_norm.weight",          "ffn_gate_inp", "ssm_conv1d",
                                        "shortconv.conv.weight", "altup",        "laurel",
                                        "per_layer_model_proj"};
    if (t->shape.n_dims < 2 || !ends_with(t->name, "weight")) return true;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(t->name, parts[i])) return true;
    }
    return false;
}

/* The first and the last eighth of the layers, and every third layer in between. */
static bool gets_more_bits(size_t layer, size_t n) {
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static ag_dtype output_matrix_type(ag_dtype type, size_t cols) {
    if (cols % ag_dtype_block(type) != 0) return AG_Q8_0;
    return type == AG_Q8_0 ? type : AG_Q6_K;
}

static unsigned layer_number(const ag_out_tensor *t) {
    unsigned layer = 0;
    return sscanf(t->name, "blk.%u.", &layer) == 1 ? layer : 0;
}

/* Counts only layers with a value projection; not every layer of every model has one. */
static bool values_get_more_bits(const ag_out_model *m, unsigned layer) {
    size_t before = 0, n = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (!ends_with(m->tensors[i].name, "attn_v.weight")) continue;
        n++;
        before += layer_number(&m->tensors[i]) < layer;
    }
    return gets_more_bits(before, n);
}

/* Chooses by the tensor's role in the model. */
static ag_dtype type_by_role(const choice *c, const ag_out_tensor *t) {
    const ag_dtype type = c->file->type;
    const unsigned layer = layer_number(t), n_layers = c->model->n_layers;
    if (!ag_dtype_is_quantized(type)) return type;
    if (!strcmp(t->name, c->tied ? "token_embd.weight" : "output.weight")) {
        return output_matrix_type(type, ag_shape_cols(&t->shape));
    }
    if (ends_with(t->name, "attn_v.weight")) {
        return c->file->is_mixed && values_get_more_bits(c->model, layer) ? AG_Q6_K : type;
    }
    if (ends_with(t->name, "attn_qkv.weight")) return c->file->is_mixed ? AG_Q5_K : type;
    const bool is_down =
        ends_with(t->name, "ffn_down.weight") || ends_with(t->name, "ffn_down_exps.weight");
    if (!is_down) return type;
    if (c->file->is_mixed && gets_more_bits(layer, n_layers)) return AG_Q6_K;
    /* With importance, formats with few levels around 0 round the first layers badly. */
    const bool guarded = c->params->imatrix && layer < n_layers / 8;
    if (guarded && type == AG_Q4_0) return AG_Q4_1;
    return guarded && type == AG_Q5_0 ? AG_Q5_1 : type;
}

static void log_fallback(const choice *c, const ag_out_tensor *t, ag_dtype desired) {
    char line[256];
    if (!c->params->log) return;
    snprintf(line, sizeof line, "%s: rows of %zu do not fit blocks of %s: %s", t->name,
             ag_shape_cols(&t->shape), ag_dtype_name(desired), ag_dtype_name(t->type));
    c->params->log(c->params->log_user, AG_LOG_INFO, line);
}

static ag_status choose_type(const choice *c, ag_out_tensor *t, size_t *n_fallback, ag_error *err) {
    const ag_dtype from = ag_out_source_type(t), quantized = c->file->type;
    ag_dtype desired;
    if (t->keeps_precision || is_never_rounded(t)) {
        if (ag_dtype_is_quantized(from) && t->shape.n_dims > 1) t->type = from;
        else t->type = AG_F32;
        return AG_OK;
    }
    const ag_quantize_params *p = c->params;
    if (!ag_tensor_type_find(p->tensor_types, p->n_tensor_types, t->name, &desired)) {
        desired = type_by_role(c, t);
    }
    /* Weights that were trained as MXFP4 would only lose by another rounding. */
    if (from == AG_MXFP4 && ag_dtype_is_quantized(desired) && !p->requantize) desired = from;
    t->type = ag_weight_type_fitting(desired, ag_shape_cols(&t->shape), AG_F16);
    if (t->type != desired) {
        log_fallback(c, t, desired);
        ++*n_fallback;
    }
    const bool twice = ag_dtype_is_quantized(from) && ag_dtype_is_quantized(t->type) &&
                       from != t->type && !c->params->requantize;
    if (!twice) return AG_OK;
    return AG_FAIL(err, DTYPE,
                   "tensor %s is %s already and would be rounded again to %s: start from a file of "
                   "f16, bf16 or f32%s",
                   t->name, ag_dtype_name(from), ag_dtype_name(t->type),
                   ag_dtype_is_quantized(quantized) ? "" : " (because of --tensor-type)");
}

ag_status ag_choose_types(ag_out_model *m, const ag_quantize_params *params, size_t *n_fallback,
                          ag_error *err) {
    choice c = {.params = params, .file = find_type(params->type), .model = m};
    const ag_model_params patterns = {.tensor_types = params->tensor_types,
                                      .n_tensor_types = params->n_tensor_types};
    AG_TRY(ag_tensor_types_check(&patterns, err));
    c.tied = !ag_out_find(m, "output.weight");
    *n_fallback = 0;
    for (size_t i = 0; i < m->n; i++) AG_TRY(choose_type(&c, &m->tensors[i], n_fallback, err));
    return AG_OK;
}
