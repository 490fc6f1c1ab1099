/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/llama_weights.h"

ag_status ag_llama_weights_find(const ag_weight_files *files, const ag_weight_spec *spec,
                                const ag_st_tensor **out, ag_error *err) {
    AG_TRY(ag_weight_files_require(files, spec->name, out, err));
    ag_shape want = spec->kind == AG_WEIGHT_VECTOR ? ag_shape_1d(spec->rows)
                                                   : ag_shape_2d(spec->rows, spec->cols);
    if (ag_shape_equal(&(*out)->shape, &want)) return AG_OK;
    char wanted[64], found[64];
    return AG_FAIL(err, SHAPE, "%s: tensor %s is %s, the configuration wants %s",
                   ag_weight_files_path(files, (*out)->file), spec->name,
                   ag_shape_format(&(*out)->shape, found, sizeof found),
                   ag_shape_format(&want, wanted, sizeof wanted));
}

/* A tied checkpoint holds one of the two names, or both with the same meaning: then the embedding
 * is the one that counts. Without lm_head every checkpoint is tied. */
static ag_status find_ends(const ag_llama_config *c, const ag_weight_files *files,
                           const ag_st_tensor **embedding, const ag_st_tensor **head,
                           ag_error *err) {
    bool has_head = ag_weight_files_find(files, AG_LM_HEAD_NAME);
    bool has_embedding = ag_weight_files_find(files, AG_EMBEDDING_NAME);
    bool tied = c->tie_word_embeddings || !has_head;
    const char *first = tied && !has_embedding && has_head ? AG_LM_HEAD_NAME : AG_EMBEDDING_NAME;
    ag_weight_spec spec = ag_table_weight(c, first);
    AG_TRY(ag_llama_weights_find(files, &spec, embedding, err));
    *head = *embedding;
    if (tied) return AG_OK;
    spec = ag_table_weight(c, AG_LM_HEAD_NAME);
    return ag_llama_weights_find(files, &spec, head, err);
}

ag_dtype ag_weight_type(ag_dtype file, ag_dtype want, size_t cols) {
    return cols % ag_dtype_block(want) ? file : want;
}

typedef struct survey {
    const ag_backend *be;
    ag_llama_census *census;
    ag_dtype want;
    uint64_t by_type[AG_DTYPE_COUNT]; /* matrix values of each type in the files */
} survey;

static void count_buffer(ag_llama_census *census, uint64_t bytes) {
    census->stored_bytes += bytes;
    if (bytes > census->largest) census->largest = bytes;
}

static void count_matrix_of(survey *s, ag_dtype file, const ag_weight_spec *spec) {
    ag_dtype type = ag_weight_type(file, s->want, spec->cols);
    s->census->matrix_bytes += spec->rows * ag_dtype_row_bytes(type, spec->cols);
    count_buffer(s->census, ag_prepared_bytes(s->be, type, spec->rows, spec->cols));
    s->census->n_kept += type != s->want;
    s->by_type[file] += (uint64_t)spec->rows * spec->cols;
}

static void count_vector_of(survey *s, const ag_weight_spec *spec) {
    s->census->other_bytes += spec->rows * sizeof(float);
    count_buffer(s->census, spec->rows * sizeof(float));
}

static void count_matrix(survey *s, const ag_st_tensor *t, const ag_weight_spec *spec) {
    count_matrix_of(s, t->dtype, spec);
    s->census->source_bytes += t->n_bytes;
}

static void count_vector(survey *s, const ag_st_tensor *t, const ag_weight_spec *spec) {
    count_vector_of(s, spec);
    s->census->source_bytes += t->n_bytes;
}

static ag_status survey_layers(const ag_llama_config *c, const ag_weight_files *files, survey *s,
                               ag_error *err) {
    size_t n = ag_layer_weight_count(c);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        for (size_t i = 0; i < n; i++) {
            ag_weight_spec spec = ag_layer_weight(c, l, i);
            const ag_st_tensor *t;
            AG_TRY(ag_llama_weights_find(files, &spec, &t, err));
            if (spec.kind == AG_WEIGHT_MATRIX) {
                count_matrix(s, t, &spec);
            } else {
                count_vector(s, t, &spec);
            }
        }
    }
    return AG_OK;
}

ag_status ag_llama_weights_survey(const ag_backend *be, const ag_llama_config *c,
                                  const ag_weight_files *files, ag_dtype want, ag_llama_census *out,
                                  ag_error *err) {
    *out = (ag_llama_census){0};
    survey s = {.be = be, .census = out, .want = want};
    const ag_st_tensor *head, *norm;
    AG_TRY(find_ends(c, files, &out->embedding, &head, err));
    AG_TRY(survey_layers(c, files, &s, err));
    ag_weight_spec spec = ag_norm_weight(c);
    AG_TRY(ag_llama_weights_find(files, &spec, &norm, err));
    count_vector(&s, norm, &spec);
    spec = ag_table_weight(c, AG_LM_HEAD_NAME);
    count_matrix(&s, head, &spec);
    out->tied = head == out->embedding;
    for (int t = 0; t < AG_DTYPE_COUNT; t++) {
        if (s.by_type[t] > s.by_type[out->file_type]) out->file_type = (ag_dtype)t;
    }
    return AG_OK;
}

void ag_llama_weights_survey_random(const ag_backend *be, const ag_llama_config *c, ag_dtype want,
                                    ag_llama_census *out) {
    *out = (ag_llama_census){0};
    survey s = {.be = be, .census = out, .want = want};
    for (size_t i = 0; i < (size_t)c->n_layers * ag_layer_weight_count(c); i++) {
        const size_t n = ag_layer_weight_count(c);
        ag_weight_spec spec = ag_layer_weight(c, (uint32_t)(i / n), i % n);
        if (spec.kind == AG_WEIGHT_MATRIX) count_matrix_of(&s, AG_F32, &spec);
        else count_vector_of(&s, &spec);
    }
    ag_weight_spec spec = ag_norm_weight(c);
    count_vector_of(&s, &spec);
    spec = ag_table_weight(c, AG_LM_HEAD_NAME);
    count_matrix_of(&s, AG_F32, &spec);
}
