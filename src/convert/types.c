/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses types as llama.cpp does (github.com/ggml-org/llama.cpp, tools/quantize), so that a type's
 * name means the same in both: matrices get the file's type, the output matrix gets more bits, and
 * in a mixture so do value and down projections of some layers. */
#include "convert/out_model.h"

#include "core/fail.h"
#include "formats/file_types.h"
#include "models/weight_types.h"

#include <stdio.h>
#include <string.h>

const char *ag_quantize_type_name(size_t i) {
    const ag_file_type *type = ag_file_type_at(i);
    return type ? type->name : NULL;
}

ag_status ag_file_type_number_for(const char *type, uint32_t *number, ag_error *err) {
    const ag_file_type *f = type ? ag_file_type_named(type) : NULL;
    if (f) {
        *number = f->number;
        return AG_OK;
    }
    char known[200] = "";
    size_t used = 0;
    for (size_t i = 0; ag_file_type_at(i) && used < sizeof known; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 ag_file_type_at(i)->name);
    }
    return AG_FAIL(err, INVALID, "unknown file type \"%.40s\"; known: %s", type ? type : "", known);
}

typedef struct choice {
    const ag_quantize_params *params;
    const ag_file_type *file;
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

static ag_dtype output_matrix_type(const ag_file_type *file, size_t cols) {
    if (cols % ag_dtype_block(file->type) != 0) return AG_Q8_0;
    return file->type == AG_Q8_0 || file->type == AG_MXFP4 ? AG_Q8_0 : AG_Q6_K;
}

static unsigned layer_number(const ag_out_tensor *t) {
    unsigned layer = 0;
    return sscanf(t->name, "blk.%u.", &layer) == 1 ? layer : 0;
}

/* Returns the index of a value projection among all of them, whose number is *n: not every layer of
 * every model has one. */
static size_t value_index(const ag_out_model *m, const ag_out_tensor *t, size_t *n) {
    size_t before = 0;
    *n = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (!ends_with(m->tensors[i].name, "attn_v.weight")) continue;
        ++*n;
        before += layer_number(&m->tensors[i]) < layer_number(t);
    }
    return before;
}

/* Returns whether at least 4 query heads share the values of a layer. */
static bool values_are_shared(const ag_out_model *m, const ag_out_tensor *values) {
    char name[32];
    snprintf(name, sizeof name, "blk.%u.attn_q.weight", layer_number(values));
    const ag_out_tensor *q = ag_out_find(m, name);
    return q && ag_shape_rows(&q->shape) >= 4 * ag_shape_rows(&values->shape);
}

static ag_dtype type_of_values(const choice *c, const ag_out_tensor *t) {
    const ag_dtype type = c->file->type;
    const bool shared = values_are_shared(c->model, t);
    size_t n;
    const size_t i = value_index(c->model, t, &n);
    switch (c->file->number) {
    case AG_FILE_Q2_K:
        return shared ? AG_Q4_K : AG_Q3_K;
    case AG_FILE_Q2_K_S:
        return shared ? AG_Q4_K : type;
    case AG_FILE_Q3_K_M:
        return i < 2 ? AG_Q5_K : AG_Q4_K;
    case AG_FILE_Q3_K_L:
        return AG_Q5_K;
    case AG_FILE_Q4_K_S:
        return i < 4 ? AG_Q5_K : type;
    case AG_FILE_IQ4_NL:
        return shared ? AG_Q5_K : type;
    case AG_FILE_Q4_K_M:
    case AG_FILE_Q5_K_M:
        return gets_more_bits(i, n) ? AG_Q6_K : type;
    default:
        return type;
    }
}

static ag_dtype type_of_down_projection(const choice *c, const ag_out_tensor *t) {
    const ag_dtype type = c->file->type;
    const unsigned layer = layer_number(t), n = c->model->n_layers;
    const bool is_first = layer < n / 8, measured = c->params->imatrix != NULL;
    switch (c->file->number) {
    case AG_FILE_Q2_K:
        return AG_Q3_K;
    case AG_FILE_Q2_K_S:
        return is_first ? AG_Q4_K : type;
    case AG_FILE_Q3_K_M:
        return layer < n / 16 ? AG_Q5_K : AG_Q4_K;
    case AG_FILE_Q3_K_L:
        return AG_Q5_K;
    case AG_FILE_Q4_K_S:
        return is_first ? AG_Q5_K : type;
    case AG_FILE_IQ4_NL:
        return is_first && !measured ? AG_Q5_K : type;
    case AG_FILE_Q4_K_M:
    case AG_FILE_Q5_K_M:
        return gets_more_bits(layer, n) ? AG_Q6_K : type;
    /* With importance, formats with few levels around 0 round the first layers badly. */
    case AG_FILE_Q4_0:
        return is_first && measured ? AG_Q4_1 : type;
    case AG_FILE_Q5_0:
        return is_first && measured ? AG_Q5_1 : type;
    default:
        return type;
    }
}

/* Returns the type of the output projection of attention, or of queries, keys and values in one
 * matrix. */
static ag_dtype type_of_attention(const choice *c, bool is_output) {
    switch (c->file->number) {
    case AG_FILE_Q2_K:
        return is_output ? AG_Q3_K : AG_Q2_K;
    case AG_FILE_Q3_K_M:
        return AG_Q4_K;
    case AG_FILE_Q3_K_L:
        return is_output ? AG_Q5_K : AG_Q4_K;
    case AG_FILE_Q4_K_M:
        return is_output ? AG_Q4_K : AG_Q5_K;
    case AG_FILE_Q5_K_M:
        return is_output ? AG_Q5_K : AG_Q6_K;
    default:
        return c->file->type;
    }
}

/* Chooses by the tensor's role in the model. */
static ag_dtype type_by_role(const choice *c, const ag_out_tensor *t) {
    if (!ag_dtype_is_quantized(c->file->type)) return c->file->type;
    if (!strcmp(t->name, c->tied ? "token_embd.weight" : "output.weight"))
        return output_matrix_type(c->file, ag_shape_cols(&t->shape));
    if (c->file->number == AG_FILE_MXFP4_MOE) return t->shape.n_dims == 3 ? AG_MXFP4 : AG_Q8_0;
    if (ends_with(t->name, "attn_v.weight")) return type_of_values(c, t);
    if (strstr(t->name, "ffn_down")) return type_of_down_projection(c, t);
    if (ends_with(t->name, "attn_qkv.weight")) return type_of_attention(c, false);
    if (ends_with(t->name, "attn_output.weight")) return type_of_attention(c, true);
    return c->file->type;
}

static void log_fallback(const choice *c, const ag_out_tensor *t, ag_dtype desired) {
    char line[256];
    if (!c->params->log) return;
    snprintf(line, sizeof line, "%s: rows of %zu do not fit blocks of %s: %s", t->name,
             ag_shape_cols(&t->shape), ag_dtype_name(desired), ag_dtype_name(t->type));
    c->params->log(c->params->log_user, AG_LOG_INFO, line);
}

/* Returns the type that the tensor's role gives. Tensors in MXFP4 were trained in it: another
 * quantised type would lose values and need more bits. */
static ag_dtype type_without_pattern(const choice *c, const ag_out_tensor *t, ag_dtype from) {
    const ag_dtype type = type_by_role(c, t);
    const bool stays = from == AG_MXFP4 && ag_dtype_is_quantized(type) && !c->params->requantize;
    return stays ? from : type;
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
        desired = type_without_pattern(c, t, from);
    }
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
    choice c = {.params = params, .file = ag_file_type_named(params->type), .model = m};
    const ag_model_params patterns = {.tensor_types = params->tensor_types,
                                      .n_tensor_types = params->n_tensor_types};
    AG_TRY(ag_tensor_types_check(&patterns, err));
    c.tied = !ag_out_find(m, "output.weight");
    *n_fallback = 0;
    for (size_t i = 0; i < m->n; i++) AG_TRY(choose_type(&c, &m->tensors[i], n_fallback, err));
    return AG_OK;
}
