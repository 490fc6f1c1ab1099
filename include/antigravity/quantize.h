/* SPDX-License-Identifier: Apache-2.0 */
/* Makes GGUF files: of Hugging Face directories and of other GGUF files. */
#ifndef ANTIGRAVITY_QUANTIZE_H
#define ANTIGRAVITY_QUANTIZE_H

#include <antigravity/backend.h>
#include <antigravity/dtype.h>
#include <antigravity/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ag_quantize_params {
    /* What matrices become: one of ag_quantize_type_name(). */
    const char *type;
    const ag_tensor_type *tensor_types; /* outrank it; of several that fit the last counts */
    size_t n_tensor_types;
    const char *imatrix;     /* a file of ag_imatrix, or NULL */
    const char *pre;         /* tokenizer.ggml.pre; NULL: found by what the tokenizer does */
    bool overwrite;          /* a file at the path is replaced */
    bool requantize;         /* what is quantised already may become another quantised type */
    uint32_t n_threads;      /* 0: usable cores */
    ag_progress_fn progress; /* NULL, or told of bytes of tensors that are written */
    void *progress_user;
    ag_log_fn log; /* NULL, or told of tensors that do not get the type that they should */
    void *log_user;
    uint64_t reserved[4]; /* 0: what later versions ask for */
} ag_quantize_params;

typedef struct ag_quantize_report {
    size_t n_tensors, n_fallback; /* the second: got another type because of their shape */
    uint64_t n_parameters, source_bytes, bytes; /* of tensors; bytes: as written */
    uint64_t file_bytes;
    uint64_t bytes_of[64]; /* of the written bytes, those of each ag_dtype */
    uint64_t reserved[4];
} ag_quantize_report;

/* ---- importance ---- */

/* Mean squares of what a model multiplies its matrices with, column by column: what an error of
 * each column costs. In files that llama.cpp's tools write and read too. */
typedef struct ag_imatrix ag_imatrix;

/* From now on, until it is destroyed, whatever the model's sessions read is measured. The model is
 * borrowed, on the CPU (AG_UNSUPPORTED), and measured by nobody else (AG_INVALID). */
AG_API ag_status ag_imatrix_create(ag_model *m, ag_imatrix **out, ag_error *err);
AG_API void ag_imatrix_destroy(ag_imatrix *im); /* NULL is fine */
/* Adds what a file of the same model holds. AG_FORMAT, AG_SHAPE; nothing is added then. */
AG_API ag_status ag_imatrix_add_file(ag_imatrix *im, const char *path, ag_error *err);
/* Tokens that were measured; those of files are counted too. */
AG_API uint64_t ag_imatrix_tokens(const ag_imatrix *im);
/* Writes the file, or nothing. dataset: what was read, a name; window: tokens of a text that were
 * read together. */
AG_API ag_status ag_imatrix_save(const ag_imatrix *im, const char *path, const char *dataset,
                                 uint32_t window, ag_error *err);

/* ---- files ---- */

/* The i-th type that a file can become, NULL past the end: "q4_0", "q4_k_m", "f16", ... */
AG_API const char *ag_quantize_type_name(size_t i);

/* source: as ag_model_load() takes it. Writes a file to the path, or nothing: it appears under its
 * name when it is whole. report may be NULL. AG_INVALID for parameters that cannot be and for a
 * path that is taken; AG_IO, a full disk for example; AG_CANCELLED. */
AG_API ag_status ag_quantize(const char *source, const char *path, const ag_quantize_params *params,
                             ag_quantize_report *report, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
