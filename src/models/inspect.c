/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/weights.h"

#include <stdio.h>
#include <string.h>

static ag_status wrong_shape(const ag_weight_source *source, const ag_source_tensor *t,
                             const ag_shape *shape, ag_error *err) {
    char expected[64], found[64];
    return AG_FAIL(err, SHAPE, "%s: tensor %s is %s, the configuration needs %s",
                   ag_source_file_path(source, t->file), t->name,
                   ag_shape_format(&t->shape, found, sizeof found),
                   ag_shape_format(shape, expected, sizeof expected));
}

/* Finds a tensor of bytes. */
static ag_status find_bytes(const ag_weight_source *source, const char *name, const ag_shape *shape,
                            const ag_source_tensor **out, ag_error *err) {
    *out = ag_source_find(source, name);
    if (!*out) return AG_FAIL(err, NOT_FOUND, "%s: has no tensor \"%s\"", source->path, name);
    if ((*out)->dtype != AG_U8) {
        return AG_FAIL(err, UNSUPPORTED, "%s: tensor \"%s\" is %s; MXFP4 needs U8",
                       ag_source_file_path(source, (*out)->file), name, (*out)->dtype_name);
    }
    return ag_shape_equal(&(*out)->shape, shape) ? AG_OK : wrong_shape(source, *out, shape, err);
}

ag_status ag_model_weights_find_exponents(const ag_weight_source *source,
                                          const ag_weight_spec *spec, const ag_source_tensor **out,
                                          ag_error *err) {
    const ag_shape nibbles = ag_weight_file_shape(spec);
    const ag_shape shape = ag_shape_3d(nibbles.dim[0], nibbles.dim[1], nibbles.dim[2]);
    char name[sizeof spec->name];
    snprintf(name, sizeof name, "%.*s_scales", (int)(strlen(spec->name) - strlen("_blocks")),
             spec->name);
    return find_bytes(source, name, &shape, out, err);
}

ag_dtype ag_weight_file_type(const ag_weight_spec *spec, const ag_source_tensor *t) {
    return spec->is_mxfp4 ? AG_MXFP4 : t->dtype;
}

ag_status ag_model_weights_find(const ag_weight_source *source, const ag_weight_spec *spec,
                                const ag_source_tensor **out, ag_error *err) {
    const ag_shape shape = ag_weight_file_shape(spec);
    if (spec->is_mxfp4) {
        AG_TRY(ag_model_weights_find_exponents(source, spec, out, err));
        return find_bytes(source, spec->name, &shape, out, err);
    }
    AG_TRY(ag_source_require(source, spec->name, out, err));
    if (ag_shape_equal(&(*out)->shape, &shape)) return AG_OK;
    const ag_shape filter = ag_shape_3d(ag_shape_rows(&shape), 1, spec->cols);
    if (spec->kind == AG_WEIGHT_FILTER && ag_shape_equal(&(*out)->shape, &filter)) return AG_OK;
    const ag_shape row = ag_shape_1d(spec->cols); /* GGUF files have no dimension for one row */
    if (spec->keeps_f32 && spec->rows == 1 && ag_shape_equal(&(*out)->shape, &row)) return AG_OK;
    return wrong_shape(source, *out, &shape, err);
}

/* Chooses the naming under which the source has the last norm, or else the embedding. */
static void find_naming(ag_model_spec *s, const ag_weight_source *source) {
    for (size_t i = 0; ag_tensor_naming(i, s); i++) {
        const ag_weight_spec norm = ag_norm_weight(s);
        if (ag_source_find(source, norm.name)) return;
    }
    for (size_t i = 0; ag_tensor_naming(i, s); i++) {
        const ag_weight_spec embedding = ag_embedding_weight(s);
        if (ag_source_find(source, embedding.name)) return;
    }
    ag_tensor_naming(0, s); /* messages then use the usual names */
}

/* Chooses the naming of experts under which the source has the first layer's, or the first of the
 * source's format. */
static void find_expert_naming(ag_model_spec *s, const ag_weight_source *source) {
    uint32_t layer = 0;
    while (layer < s->n_layers && !ag_spec_layer(s, layer)->experts.route.n_experts) layer++;
    if (layer == s->n_layers) return;
    for (size_t n = 0; ag_expert_naming(n, s); n++) {
        size_t i = 0;
        ag_weight_spec w = ag_layer_weight(s, layer, i);
        while (w.tensor != AG_LT_EXPERT_GATE) w = ag_layer_weight(s, layer, ++i);
        if (ag_source_find(source, w.name)) return;
    }
    ag_expert_naming(0, s);
}

/* Finds the embedding and the head. A tied checkpoint has one of the two tensors, or both with
 * equal data; then the embedding is used. A checkpoint without lm_head is tied. */
static ag_status find_ends(const ag_model_spec *s, const ag_weight_source *source,
                           const ag_source_tensor **embedding, const ag_source_tensor **head,
                           ag_error *err) {
    const ag_weight_spec table = ag_embedding_weight(s), lm_head = ag_lm_head_weight(s);
    bool has_head = ag_source_find(source, lm_head.name);
    bool has_embedding = ag_source_find(source, table.name);
    bool tied = s->tie_word_embeddings || !has_head;
    bool only_head = tied && !has_embedding && has_head;
    AG_TRY(ag_model_weights_find(source, only_head ? &lm_head : &table, embedding, err));
    *head = *embedding;
    return tied ? AG_OK : ag_model_weights_find(source, &lm_head, head, err);
}

uint64_t ag_weight_file_bytes(ag_dtype file, const ag_weight_spec *spec) {
    const bool is_matrix = spec->kind != AG_WEIGHT_VECTOR;
    return is_matrix ? (uint64_t)spec->rows * ag_dtype_row_bytes(file, spec->cols)
                     : ag_dtype_row_bytes(file, spec->rows);
}

typedef struct inspection {
    const ag_backend *be;
    ag_weights_summary *summary;
    const ag_model_params *params;
    uint64_t by_type[AG_DTYPE_COUNT]; /* values of matrices of each type in the files */
} inspection;

static void count_buffer(ag_weights_summary *summary, uint64_t bytes) {
    summary->stored_bytes += bytes;
    if (bytes > summary->largest) summary->largest = bytes;
}

/* Returns whether a matrix has the file's type because its rows are no multiple of the requested
 * type's block. */
static bool keeps_file_type(const ag_model_params *p, ag_dtype type, ag_dtype file, size_t cols) {
    const size_t block = ag_weights_is_mix(p->weights) ? 32 : ag_dtype_block(p->weights);
    return !p->as_is && type == file && cols % block != 0;
}

static void count_matrix_of(inspection *v, ag_dtype file, const ag_weight_spec *spec) {
    const ag_dtype type = ag_weight_type(spec, file, v->params);
    const uint64_t bytes = (uint64_t)spec->rows * ag_dtype_row_bytes(type, spec->cols);
    v->summary->matrix_bytes += bytes;
    if (spec->expert < spec->n_experts - spec->n_used) v->summary->idle_bytes += bytes;
    v->summary->types[type].type = type;
    v->summary->types[type].values += (uint64_t)spec->rows * spec->cols;
    v->summary->types[type].bytes += bytes;
    count_buffer(v->summary, ag_prepared_bytes(v->be, type, spec->rows, spec->cols));
    v->summary->n_kept += !spec->keeps_f32 && keeps_file_type(v->params, type, file, spec->cols);
    v->by_type[file] += (uint64_t)spec->rows * spec->cols;
}

static void count_vector_of(inspection *v, const ag_weight_spec *spec) {
    v->summary->other_bytes += spec->rows * spec->cols * sizeof(float);
    count_buffer(v->summary, spec->rows * spec->cols * sizeof(float));
}

static void count_matrix(inspection *v, const ag_source_tensor *t, const ag_weight_spec *spec) {
    const ag_dtype file = ag_weight_file_type(spec, t);
    count_matrix_of(v, file, spec);
    v->summary->source_bytes += ag_weight_file_bytes(file, spec);
}

static void count_vector(inspection *v, const ag_source_tensor *t, const ag_weight_spec *spec) {
    count_vector_of(v, spec);
    v->summary->source_bytes += ag_weight_file_bytes(t->dtype, spec);
}

static ag_status inspect_layers(const ag_model_spec *s, const ag_weight_source *source,
                                inspection *v, ag_error *err) {
    for (uint32_t l = 0; l < s->n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(s, l); i++) {
            ag_weight_spec spec = ag_layer_weight(s, l, i);
            const ag_source_tensor *t;
            AG_TRY(ag_model_weights_find(source, &spec, &t, err));
            if (spec.kind == AG_WEIGHT_MATRIX) {
                count_matrix(v, t, &spec);
            } else {
                count_vector(v, t, &spec);
            }
        }
    }
    return AG_OK;
}

ag_status ag_model_weights_inspect(const ag_backend *be, ag_model_spec *s,
                                   const ag_weight_source *source, const ag_model_params *params,
                                   ag_weights_summary *out, ag_error *err) {
    *out = (ag_weights_summary){0};
    inspection v = {.be = be, .summary = out, .params = params};
    const ag_source_tensor *head, *norm;
    find_naming(s, source);
    find_expert_naming(s, source);
    AG_TRY(find_ends(s, source, &out->embedding, &head, err));
    if (s->layer_input) {
        const ag_weight_spec inputs = ag_layer_input_weight(s);
        AG_TRY(ag_model_weights_find(source, &inputs, &out->layer_inputs, err));
    }
    AG_TRY(inspect_layers(s, source, &v, err));
    ag_weight_spec spec = ag_norm_weight(s);
    AG_TRY(ag_model_weights_find(source, &spec, &norm, err));
    count_vector(&v, norm, &spec);
    spec = ag_lm_head_weight(s);
    count_matrix(&v, head, &spec);
    out->tied = head == out->embedding;
    for (int t = 0; t < AG_DTYPE_COUNT; t++) {
        if (v.by_type[t] > v.by_type[out->file_type]) out->file_type = (ag_dtype)t;
    }
    return AG_OK;
}

void ag_model_weights_inspect_random(const ag_backend *be, const ag_model_spec *s,
                                     const ag_model_params *params, ag_weights_summary *out) {
    *out = (ag_weights_summary){0};
    inspection v = {.be = be, .summary = out, .params = params};
    for (uint32_t l = 0; l < s->n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(s, l); i++) {
            ag_weight_spec spec = ag_layer_weight(s, l, i);
            if (spec.kind == AG_WEIGHT_MATRIX) count_matrix_of(&v, AG_F32, &spec);
            else count_vector_of(&v, &spec);
        }
    }
    ag_weight_spec spec = ag_norm_weight(s);
    count_vector_of(&v, &spec);
    spec = ag_lm_head_weight(s);
    count_matrix_of(&v, AG_F32, &spec);
}
