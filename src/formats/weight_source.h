/* SPDX-License-Identifier: Apache-2.0 */
/* Where a model comes from: its configuration, its tensors by name, its tokenizer and its chat
 * template, whatever the files are. A format is one table of functions and one line in
 * weight_source.c. Nothing here knows which tensors a model needs.
 *
 * Once its tensors are open a source does not change: any number of threads may read it. The files
 * must not change either. Sizes are checked when opening; if a file is truncated later, reading
 * gives AG_IO, but touching what was mapped raises SIGBUS: that is how the system says it. */
#ifndef AG_FORMATS_WEIGHT_SOURCE_H
#define AG_FORMATS_WEIGHT_SOURCE_H

#include "formats/tensor_list.h"

typedef struct ag_weight_source ag_weight_source;
typedef struct ag_weight_files ag_weight_files;

/* Texts that a source may hold, spelled as a Hugging Face directory spells them. */
typedef enum ag_source_text_kind {
    AG_SOURCE_CONFIG,            /* config.json */
    AG_SOURCE_GENERATION_CONFIG, /* generation_config.json; optional */
    AG_SOURCE_TOKENIZER,         /* tokenizer.json; optional */
    AG_SOURCE_TOKENIZER_CONFIG,  /* tokenizer_config.json; optional */
    AG_SOURCE_CHAT_TEMPLATE,     /* Jinja; optional */
} ag_source_text_kind;

typedef struct ag_source_text {
    char *text; /* owned, terminated; NULL: the source has none */
    size_t n;
    char *name; /* owned; the file, for messages */
} ag_source_text;
void ag_source_text_free(ag_source_text *t);

/* Bytes that somebody else owns, without a NUL behind them; n == 0: there are none. */
typedef struct ag_source_string {
    const char *text;
    size_t n;
} ag_source_string;

/* Values of ag_source_vocabulary.types, numbered as in GGUF files, which may hold others too. */
typedef enum ag_token_type {
    AG_TOKEN_NORMAL = 1,
    AG_TOKEN_UNKNOWN = 2,
    AG_TOKEN_CONTROL = 3,
    AG_TOKEN_USER_DEFINED = 4,
    AG_TOKEN_UNUSED = 5,
    AG_TOKEN_BYTE = 6,
} ag_token_type;

/* A tokenizer as lists, of formats that have no tokenizer.json. Nothing in the strings is checked:
 * they need not be UTF-8, and may repeat. Ids are below n_tokens. Where the file says nothing,
 * strings are empty, ids and add_... are -1. */
typedef struct ag_source_vocabulary {
    size_t n_tokens; /* 0: the source has none, and the rest is zero */
    ag_source_string *tokens;
    float *scores;  /* [n_tokens], or NULL */
    int32_t *types; /* [n_tokens] of ag_token_type, or NULL */
    size_t n_merges;
    ag_source_string *merges; /* "a b", best first */
    ag_source_string model;   /* of what kind: "gpt2", "llama" */
    ag_source_string pre;     /* how text is divided first: "llama-bpe", "qwen2", "default" */
    int64_t bos, eos, eot, eom, unk, sep, pad, mask;
    int64_t add_bos, add_eos, add_space_prefix; /* 0, 1 */
} ag_source_vocabulary;

typedef struct ag_weight_source_ops {
    const char *name;  /* "safetensors" */
    size_t size_bytes; /* of the container: ag_weight_source is its first member */
    bool (*recognises)(const char *path);
    ag_status (*read_text)(const ag_weight_source *s, ag_source_text_kind kind, ag_source_text *out,
                           ag_error *err);
    /* Reads and checks the headers: s->files is set and sorted. */
    ag_status (*open_tensors)(ag_weight_source *s, ag_error *err);
    /* optional; NULL: nothing is read before it is asked for. close follows after a failure too */
    ag_status (*open)(ag_weight_source *s, ag_error *err);
    /* optional; NULL: the container owns nothing but path and files */
    void (*close)(ag_weight_source *s);
    /* optional; NULL: the source has no vocabulary, perhaps a tokenizer.json */
    ag_status (*read_vocabulary)(const ag_weight_source *s, ag_source_vocabulary *out,
                                 ag_error *err);
} ag_weight_source_ops;

struct ag_weight_source {
    const ag_weight_source_ops *ops;
    char *path;             /* owned; as it was given */
    ag_weight_files *files; /* owned; NULL: not open yet */
};

/* What lies at the path. Reads no tensor yet. *out is NULL after a failure. */
ag_status ag_source_open(const char *path, ag_weight_source **out, ag_error *err);
void ag_source_destroy(ag_weight_source *s); /* NULL is fine */

/* *out is zeroed if the source does not have an optional part. AG_NOT_FOUND for one that is not
 * optional. Release with ag_source_text_free. */
ag_status ag_source_read_text(const ag_weight_source *s, ag_source_text_kind kind,
                              ag_source_text *out, ag_error *err);
/* *out is zeroed, n_tokens too, if the source has none. Its arrays are the caller's
 * (ag_source_vocabulary_free); the bytes of all strings are borrowed from s. */
ag_status ag_source_read_vocabulary(const ag_weight_source *s, ag_source_vocabulary *out,
                                    ag_error *err);
void ag_source_vocabulary_free(ag_source_vocabulary *v);
/* AG_NOT_FOUND without any weights; AG_FORMAT, with file and place, for what is malformed. */
ag_status ag_source_open_tensors(ag_weight_source *s, ag_error *err);

/* All tensors, sorted by name (strcmp). Pointers to them are borrowed from s. */
size_t ag_source_n_tensors(const ag_weight_source *s);
const ag_source_tensor *ag_source_tensor_at(const ag_weight_source *s, size_t i);
const ag_source_tensor *ag_source_find(const ag_weight_source *s, const char *name);
/* The tensor as a weight: AG_NOT_FOUND if there is none of that name, AG_UNSUPPORTED if it is of a
 * type that no weight has or has more than AG_MAX_DIMS dims. */
ag_status ag_source_require(const ag_weight_source *s, const char *name,
                            const ag_source_tensor **out, ag_error *err);

/* The files behind it: how many, their paths and sizes. */
size_t ag_source_n_files(const ag_weight_source *s);
const char *ag_source_file_path(const ag_weight_source *s, size_t file);
uint64_t ag_source_file_bytes(const ag_weight_source *s, size_t file);

/* The tensor in a read-only mapping of its file, which *out borrows. Its data need not be aligned
 * to its element size. Pages come in when touched. */
ag_status ag_source_map(const ag_weight_source *s, const ag_source_tensor *t, ag_tensor *out,
                        ag_error *err);
/* Takes bytes [first, first + n) of the tensor out of this process's memory once they have been
 * used; they stay readable and come back from the file. Whole pages, borders included. A range past
 * the end is cut. When all of a tensor is dropped, so is what the system mapped around it: reading
 * one byte may bring in a neighbour's pages, up to 2 MiB of them. */
void ag_source_drop(const ag_weight_source *s, const ag_source_tensor *t, uint64_t first,
                    uint64_t n);
/* Copies bytes [first, first + n) of the tensor by pread, without touching the mapping. AG_INVALID
 * if the range passes the tensor's end; AG_IO if the file cannot give them. */
ag_status ag_source_read(const ag_weight_source *s, const ag_source_tensor *t, uint64_t first,
                         void *dst, size_t n, ag_error *err);

/* A GGUF file, whole or in parts: gguf_source.c. */
extern const ag_weight_source_ops ag_gguf_ops;
/* A Hugging Face directory: hf_directory.c. */
extern const ag_weight_source_ops ag_hf_directory_ops;

#endif
