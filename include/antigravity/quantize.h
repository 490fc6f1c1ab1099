/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisation: converts Hugging Face directories and GGUF files to GGUF files. */
#ifndef ANTIGRAVITY_QUANTIZE_H
#define ANTIGRAVITY_QUANTIZE_H

#include <antigravity/backend.h>
#include <antigravity/dtype.h>
#include <antigravity/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ag_quantize_params {
    /* Type of the matrices: one of ag_quantize_type_name(). */
    const char *type;
    const ag_tensor_type *tensor_types; /* override it; the last match applies */
    size_t n_tensor_types;
    const char *imatrix;     /* file of ag_imatrix_save(); may be NULL */
    const char *pre;         /* tokenizer.ggml.pre; NULL: detected from the tokenizer */
    bool overwrite;          /* replace an existing file */
    bool requantize;         /* allow converting quantised matrices to another quantised type */
    uint32_t n_threads;      /* 0: usable cores */
    ag_progress_fn progress; /* written bytes of tensors; may be NULL */
    void *progress_user;
    /* Receives tensors that get another type than requested, and a warning if the tensors of the
     * file exceed those of the source; may be NULL. */
    ag_log_fn log;
    void *log_user;
    uint64_t reserved[4]; /* must be 0 */
} ag_quantize_params;

typedef struct ag_quantize_report {
    size_t n_tensors, n_fallback; /* n_fallback: got another type because of their shape */
    uint64_t n_parameters, source_bytes, bytes; /* sums over tensors; bytes: as written */
    uint64_t file_bytes;
    uint64_t bytes_of[64]; /* written bytes of each ag_dtype */
    uint64_t reserved[4];
} ag_quantize_report;

/* ---- importance ---- */

/* Importance matrix: mean squares of the inputs of a model's matrices, column by column. They weigh
 * the quantisation error of each column. llama.cpp's tools read and write the same files. */
typedef struct ag_imatrix ag_imatrix;

/* Creates an importance matrix that measures all tokens of the model's sessions until it is
 * destroyed. The model is borrowed. Fails with AG_UNSUPPORTED for a model that is not on the CPU
 * and with AG_INVALID if the model is being measured already. */
AG_API ag_status ag_imatrix_create(ag_model *m, ag_imatrix **out, ag_error *err);
AG_API void ag_imatrix_destroy(ag_imatrix *im); /* NULL is fine */
/* Adds a file of the same model. Fails with AG_FORMAT or AG_SHAPE, and then adds nothing. */
AG_API ag_status ag_imatrix_add_file(ag_imatrix *im, const char *path, ag_error *err);
/* Returns the number of measured tokens, including those of added files. */
AG_API uint64_t ag_imatrix_tokens(const ag_imatrix *im);
/* Writes the file atomically. dataset is the name of the text; window is the number of tokens in
 * one context. */
AG_API ag_status ag_imatrix_save(const ag_imatrix *im, const char *path, const char *dataset,
                                 uint32_t window, ag_error *err);

/* ---- files ---- */

/* Returns the i-th type of a file, NULL past the end: "q4_0", "q4_k_m", "f16", ... */
AG_API const char *ag_quantize_type_name(size_t i);

/* Converts the model at `source` (as ag_model_load() takes it) to the file `path`, atomically.
 * report may be NULL. Fails with AG_INVALID for bad parameters or an existing file, with AG_IO (a
 * full disk, for example), or with AG_CANCELLED. */
AG_API ag_status ag_quantize(const char *source, const char *path, const ag_quantize_params *params,
                             ag_quantize_report *report, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
