/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF file that is to be written: its tensors, and where their rows come from. */
#ifndef AG_CONVERT_OUT_MODEL_H
#define AG_CONVERT_OUT_MODEL_H

#include "formats/gguf_writer.h"
#include "formats/weight_source.h"
#include "models/row_order.h"

#include <antigravity/quantize.h>

enum { AG_OUT_SECTIONS = 4 };

/* Row i of it is row ag_row_order_at(&from, i) of the source's tensor, and becomes row
 * ag_row_order_at(&to, i) of the file's. */
typedef struct ag_out_section {
    const ag_source_tensor *source; /* borrowed */
    ag_row_order from, to;
    size_t rows;
} ag_out_section;

typedef struct ag_out_tensor {
    char name[AG_GGUF_MAX_NAME + 1];
    ag_shape shape;       /* outermost first */
    ag_dtype type;        /* what it becomes */
    bool keeps_precision; /* in its type, whatever the file becomes */
    bool minus_exp;       /* of every value -exp is written */
    float add;            /* to every value */
    float factor;         /* of every value, after that */
    ag_row_order columns; /* where each of the source's columns is put; file_rows 0: they stay */
    float *values;        /* owned; made up, instead of parts; F32 */
    size_t n_sections;
    ag_out_section sections[AG_OUT_SECTIONS];
} ag_out_tensor;

typedef struct ag_out_model {
    const ag_weight_source *source; /* borrowed */
    ag_gguf_writer writer;
    ag_out_tensor *tensors; /* owned, in the order of the file */
    size_t n, cap;
    uint32_t n_layers;
} ag_out_model;

/* A new tensor, zeroed but for its name; NULL without memory. Valid until the next one. */
ag_out_tensor *ag_out_add(ag_out_model *m, const char *name);
ag_out_tensor *ag_out_find(const ag_out_model *m, const char *name);
void ag_out_model_free(ag_out_model *m);

/* The type that most of its data has in the source. */
ag_dtype ag_out_source_type(const ag_out_tensor *t);

/* What fills it in but for types: metadata and tensors. from_gguf.c: of a GGUF source, everything
 * as it is there. from_directory.c: of a directory. */
ag_status ag_out_from_gguf(ag_out_model *m, ag_error *err);
ag_status ag_out_from_directory(ag_out_model *m, const ag_quantize_params *params, ag_error *err);

#endif
