/* SPDX-License-Identifier: Apache-2.0 */
/* Weight source: a model's configuration, tensors by name, tokenizer and chat template, whatever
 * the format of its files. A format is a table of functions and one line in weight_source.c. A
 * source does not know which tensors a model needs. Once its tensors are open a source is
 * immutable, and any thread may read it. The files must not change either. Sizes are checked on
 * opening. If a file is truncated later, reading fails with AG_IO, but access to mapped data raises
 * SIGBUS. */
#ifndef AG_FORMATS_WEIGHT_SOURCE_H
#define AG_FORMATS_WEIGHT_SOURCE_H

#include "formats/tensor_list.h"

typedef struct ag_weight_source ag_weight_source;
typedef struct ag_weight_files ag_weight_files;

/* Texts of a source, named after the files of a Hugging Face directory. */
typedef enum ag_source_text_kind {
    AG_SOURCE_CONFIG,            /* config.json */
    AG_SOURCE_GENERATION_CONFIG, /* generation_config.json; optional */
    AG_SOURCE_TOKENIZER,         /* tokenizer.json; optional */
    AG_SOURCE_TOKENIZER_CONFIG,  /* tokenizer_config.json; optional */
    AG_SOURCE_CHAT_TEMPLATE,     /* Jinja; optional */
} ag_source_text_kind;

typedef struct ag_source_text {
    char *text; /* owned, terminated; NULL: absent */
    size_t n;
    char *name; /* owned; name of the file, for messages */
} ag_source_text;
void ag_source_text_free(ag_source_text *t);

/* Borrowed bytes without a terminating NUL. */
typedef struct ag_source_string {
    const char *text;
    size_t n;
} ag_source_string;

/* Values of ag_source_vocabulary.types, numbered as in GGUF files. Files may hold others. */
typedef enum ag_token_type {
    AG_TOKEN_NORMAL = 1,
    AG_TOKEN_UNKNOWN = 2,
    AG_TOKEN_CONTROL = 3,
    AG_TOKEN_USER_DEFINED = 4,
    AG_TOKEN_UNUSED = 5,
    AG_TOKEN_BYTE = 6,
} ag_token_type;

/* A tokenizer as lists, for formats without tokenizer.json. Strings are unchecked: they may be
 * invalid UTF-8 and may repeat. Ids are below n_tokens. Values that the file lacks are empty
 * strings, or -1 for ids and add_... */
typedef struct ag_source_vocabulary {
    size_t n_tokens; /* 0: no vocabulary, and all members are zero */
    ag_source_string *tokens;
    float *scores;  /* [n_tokens], or NULL */
    int32_t *types; /* [n_tokens] of ag_token_type, or NULL */
    size_t n_merges;
    ag_source_string *merges; /* "a b", best first */
    ag_source_string model;   /* kind of tokenizer: "gpt2", "llama" */
    ag_source_string pre;     /* pre-tokenizer: "llama-bpe", "qwen2", "default" */
    int64_t bos, eos, eot, eom, unk, sep, pad, mask;
    int64_t add_bos, add_eos, add_space_prefix; /* 0, 1 */
} ag_source_vocabulary;

typedef struct ag_weight_source_ops {
    const char *name;  /* "safetensors" */
    size_t size_bytes; /* size of the structure whose first member is ag_weight_source */
    bool (*recognises)(const char *path);
    ag_status (*read_text)(const ag_weight_source *s, ag_source_text_kind kind, ag_source_text *out,
                           ag_error *err);
    /* Reads and checks the headers. Sets and sorts s->files. */
    ag_status (*open_tensors)(ag_weight_source *s, ag_error *err);
    /* optional; NULL: nothing is read on opening. close() is called after a failure too */
    ag_status (*open)(ag_weight_source *s, ag_error *err);
    /* optional; NULL: the structure owns only path and files */
    void (*close)(ag_weight_source *s);
    /* optional; NULL: no vocabulary, but perhaps a tokenizer.json */
    ag_status (*read_vocabulary)(const ag_weight_source *s, ag_source_vocabulary *out,
                                 ag_error *err);
} ag_weight_source_ops;

struct ag_weight_source {
    const ag_weight_source_ops *ops;
    char *path;             /* owned; as given to ag_source_open() */
    ag_weight_files *files; /* owned; NULL until the tensors are open */
};

/* Opens the model at `path`. Reads headers only. *out is NULL after a failure. */
ag_status ag_source_open(const char *path, ag_weight_source **out, ag_error *err);
void ag_source_destroy(ag_weight_source *s); /* NULL is fine */

/* Reads a text. *out is zeroed if an optional text is absent. Fails with AG_NOT_FOUND if the
 * configuration is absent. Release *out with ag_source_text_free(). */
ag_status ag_source_read_text(const ag_weight_source *s, ag_source_text_kind kind,
                              ag_source_text *out, ag_error *err);
/* Reads the vocabulary. *out is zeroed if the source has none. The caller releases its arrays with
 * ag_source_vocabulary_free(). The bytes of strings are borrowed from s. */
ag_status ag_source_read_vocabulary(const ag_weight_source *s, ag_source_vocabulary *out,
                                    ag_error *err);
void ag_source_vocabulary_free(ag_source_vocabulary *v);
/* Reads the headers of all files. Fails with AG_NOT_FOUND without any weights; with AG_FORMAT, with
 * file and position, for malformed files. */
ag_status ag_source_open_tensors(ag_weight_source *s, ag_error *err);

/* Tensors, sorted by name (strcmp), borrowed from s. ag_source_find() returns NULL for an unknown
 * name. */
size_t ag_source_n_tensors(const ag_weight_source *s);
const ag_source_tensor *ag_source_tensor_at(const ag_weight_source *s, size_t i);
const ag_source_tensor *ag_source_find(const ag_weight_source *s, const char *name);
/* Finds a tensor that is a weight. Fails with AG_NOT_FOUND if no tensor has the name; with
 * AG_UNSUPPORTED if its type is not one of weights or it has more than AG_MAX_DIMS dims. */
ag_status ag_source_require(const ag_weight_source *s, const char *name,
                            const ag_source_tensor **out, ag_error *err);

/* Number of files, their paths and sizes. */
size_t ag_source_n_files(const ag_weight_source *s);
const char *ag_source_file_path(const ag_weight_source *s, size_t file);
uint64_t ag_source_file_bytes(const ag_weight_source *s, size_t file);

/* Makes *out the tensor in the read-only mapping of its file, which it borrows. Its data may be
 * unaligned. */
ag_status ag_source_map(const ag_weight_source *s, const ag_source_tensor *t, ag_tensor *out,
                        ag_error *err);
/* Drops the pages of bytes [first, first + n) of the tensor from this process's memory: see
 * ag_weight_files_drop(). */
void ag_source_drop(const ag_weight_source *s, const ag_source_tensor *t, uint64_t first,
                    uint64_t n);
/* Reads bytes [first, first + n) of the tensor without its mapping. Fails with AG_INVALID if the
 * range is beyond the tensor's end; with AG_IO if the file cannot be read. */
ag_status ag_source_read(const ag_weight_source *s, const ag_source_tensor *t, uint64_t first,
                         void *dst, size_t n, ag_error *err);

/* GGUF files: gguf_source.c. */
extern const ag_weight_source_ops ag_gguf_ops;
/* Hugging Face directories: hf_directory.c. */
extern const ag_weight_source_ops ag_hf_directory_ops;

#endif
