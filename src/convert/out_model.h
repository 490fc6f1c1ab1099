/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a GGUF file to be written: its tensors and the origin of their rows. */
#ifndef AG_CONVERT_OUT_MODEL_H
#define AG_CONVERT_OUT_MODEL_H

#include "formats/gguf_writer.h"
#include "formats/weight_source.h"
#include "models/row_order.h"
#include "models/spec.h"

#include <antigravity/quantize.h>

/* Row ag_row_order_at(&from, i) of the source's tensor becomes row ag_row_order_at(&to, i) of the
 * file's tensor. */
typedef struct ag_out_section {
    const ag_source_tensor *source;    /* borrowed */
    const ag_source_tensor *exponents; /* borrowed; the source has nibbles of MXFP4; NULL: rows */
    ag_row_order from, to;
    size_t rows;
    /* The source has rows as columns of matrices of `transposed` columns; 0: as rows. */
    size_t transposed;
} ag_out_section;

typedef struct ag_out_tensor {
    char name[AG_GGUF_MAX_NAME + 1];
    ag_shape shape;       /* outermost first */
    ag_dtype type;        /* the type in the file */
    bool keeps_precision; /* not quantised, whatever the type of the file */
    bool minus_exp;       /* writes -exp(value) */
    float add;            /* added to every value */
    float factor;         /* multiplies every value, after the addition */
    ag_row_order columns; /* new positions of the source's columns; file_rows 0: unchanged */
    float *values;        /* owned; generated F32 values, used instead of sections */
    bool by_value;        /* rows of sections are single values */
    size_t n_sections, cap_sections;
    ag_out_section *sections; /* owned */
} ag_out_tensor;

typedef struct ag_out_model {
    const ag_weight_source *source; /* borrowed */
    ag_gguf_writer writer;
    ag_out_tensor *tensors; /* owned; in the order of the file */
    size_t n, cap;
    uint32_t n_layers;
} ag_out_model;

/* Adds a tensor that is zeroed except for its name and a factor of 1. Returns NULL if memory is
 * exhausted. The pointer is valid until the next call. */
ag_out_tensor *ag_out_add(ag_out_model *m, const char *name);
/* Adds a section. Returns false if memory is exhausted. */
bool ag_out_add_section(ag_out_tensor *t, const ag_out_section *section);
ag_out_tensor *ag_out_find(const ag_out_model *m, const char *name);
void ag_out_model_free(ag_out_model *m);

/* Returns the type of the first section; AG_F32 for generated values. */
ag_dtype ag_out_source_type(const ag_out_tensor *t);

/* Add metadata and tensors, without types. ag_out_from_gguf copies all tensors and all keys that
 * describe the model. */
ag_status ag_out_from_gguf(ag_out_model *m, ag_error *err);
ag_status ag_out_from_directory(ag_out_model *m, const ag_quantize_params *params, ag_error *err);

/* types.c. Finds the number of general.file_type. Returns AG_INVALID with a list of the types if
 * `type` is unknown. */
ag_status ag_file_type_number_for(const char *type, uint32_t *number, ag_error *err);

/* Sets the types of all tensors. *n_fallback counts tensors whose rows do not fit the blocks of the
 * desired type; params->log reports each. Returns the errors of ag_tensor_types_check, and AG_DTYPE
 * for a tensor that would be rounded twice. */
ag_status ag_choose_types(ag_out_model *m, const ag_quantize_params *params, size_t *n_fallback,
                          ag_error *err);

/* vocabulary.c. Writes the keys of a directory's tokenizer, which start with "tokenizer."; the
 * model is "none" if there is no tokenizer.json. pre: tokenizer.ggml.pre; NULL: derived from the
 * pattern. Returns AG_UNSUPPORTED for a tokenizer that these keys cannot describe. */
ag_status ag_put_vocabulary(ag_out_model *m, const ag_model_spec *s, const char *pre,
                            ag_error *err);

/* same_model.c. Checks that a GGUF file describes the same model as its source: the format has no
 * keys for some properties. Call this after the whole file is written and before it is committed.
 * Returns AG_UNSUPPORTED with the first property that would differ. */
ag_status ag_check_same_model(const ag_weight_source *source, ag_gguf_writer *file, ag_error *err);

#endif
