/* SPDX-License-Identifier: Apache-2.0 */
/* Text <-> token ids, as a Hugging Face tokenizer.json or a GGUF file says. */
#ifndef ANTIGRAVITY_TOKENIZER_H
#define ANTIGRAVITY_TOKENIZER_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Immutable once loaded: any number of threads may encode and decode with one at the same time. */
typedef struct ag_tokenizer ag_tokenizer;

/* path: a model (a directory that holds a tokenizer.json, a GGUF file or a directory with one), or
 * a tokenizer.json by itself. AG_NOT_FOUND if there is no such file, or no tokenizer in it;
 * AG_FORMAT with file, place and reason; AG_UNSUPPORTED names the component it does not know (of a
 * GGUF file: its tokenizer.ggml.model or .pre).
 * *out is NULL after a failure; ag_tokenizer_destroy(*out) otherwise (NULL is fine). */
AG_API ag_status ag_tokenizer_load(const char *path, ag_tokenizer **out, ag_error *err);
/* A tokenizer.json from memory; `name` stands in messages for the file. */
AG_API ag_status ag_tokenizer_parse(const char *json, size_t len, const char *name,
                                    ag_tokenizer **out, ag_error *err);
AG_API void ag_tokenizer_destroy(ag_tokenizer *t);

/* 1 + the largest id, added tokens included. Ids may have gaps. */
AG_API int32_t ag_tokenizer_vocab_size(const ag_tokenizer *t);
/* Bytes of the token's stored spelling ("\xc4\xa0the"), not terminated by len; NULL for an id that
 * does not exist. Borrowed from t. */
AG_API const char *ag_tokenizer_token(const ag_tokenizer *t, int32_t id, size_t *len);
/* The id with exactly this stored spelling, or -1. */
AG_API int32_t ag_tokenizer_id(const ag_tokenizer *t, const char *token, size_t len);
AG_API bool ag_tokenizer_is_special(const ag_tokenizer *t, int32_t id);

enum {
    AG_ENCODE_BOS = 1, /* what the file says that a text begins and ends with: the post-processor's
                        * ids; of a GGUF file BOS and EOS, as add_bos_token and add_eos_token say or
                        * its kind of tokenizer has it */
    AG_ENCODE_PARSE_SPECIAL = 2, /* "<|eot_id|>" in the text becomes the token; else it is text.
                                  * Added tokens that are not special (of a GGUF file: user-defined
                                  * ones) are always found. */
};

/* A growable list of ids; zero-initialise, release with ag_ids_free. */
typedef struct ag_ids {
    int32_t *data;
    size_t n, cap;
} ag_ids;
AG_API void ag_ids_free(ag_ids *ids);

/* Appends the ids of text[0..len) to *ids. NUL is a character like others. Bytes that are not UTF-8
 * are AG_FORMAT with the offset; *ids is as before after a failure. */
AG_API ag_status ag_tokenizer_encode(const ag_tokenizer *t, const char *text, size_t len,
                                     unsigned flags, ag_ids *ids, ag_error *err);

/* A growable byte string, always terminated by a NUL not counted in len once it has data. */
typedef struct ag_text {
    char *data;
    size_t len, cap;
} ag_text;
AG_API void ag_text_free(ag_text *text);

/* Appends the chat template, in Jinja, of the model at `path`: chat_template.jinja, or what
 * tokenizer_config.json or the GGUF file says. AG_NOT_FOUND if the model has none. */
AG_API ag_status ag_chat_template_load(const char *path, ag_text *out, ag_error *err);

/* Appends what the ids say; special tokens only with keep_special. The result of a whole decode is
 * what the tokenizers library gives (invalid byte sequences become U+FFFD). AG_INVALID names the
 * first id that does not exist. */
AG_API ag_status ag_tokenizer_decode(const ag_tokenizer *t, const int32_t *ids, size_t n,
                                     bool keep_special, ag_text *out, ag_error *err);

/* Decodes one id after another, emitting only whole UTF-8 characters, in O(new bytes). The pieces
 * joined are what ag_tokenizer_decode gives for all ids at once. */
typedef struct ag_decoder ag_decoder;
/* The decoder borrows t. The first piece is treated as the start of a text (a leading space that
 * the format strips there is stripped) unless continues is true. */
AG_API ag_status ag_decoder_create(const ag_tokenizer *t, bool keep_special, bool continues,
                                   ag_decoder **out, ag_error *err);
AG_API void ag_decoder_destroy(ag_decoder *d);
/* Appends the characters that id completes to *out (perhaps none), which grows as needed. Byte
 * tokens ("<0x41>") are kept until their run ends, because the run is text or not as a whole; only
 * a run of more than 4 KB allocates in the decoder. */
AG_API ag_status ag_decoder_push(ag_decoder *d, int32_t id, ag_text *out, ag_error *err);
/* Appends what is left: an unfinished character becomes U+FFFD. The decoder starts anew. */
AG_API ag_status ag_decoder_flush(ag_decoder *d, ag_text *out, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
