/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers: convert between text and token ids. Loaded from a Hugging Face tokenizer.json or a
 * GGUF file. */
#ifndef ANTIGRAVITY_TOKENIZER_H
#define ANTIGRAVITY_TOKENIZER_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tokenizer. Immutable: any number of threads may use one at the same time. */
typedef struct ag_tokenizer ag_tokenizer;

/* Loads the tokenizer of a model (a directory with tokenizer.json, a GGUF file or a directory with
 * one), or a tokenizer.json. Fails with AG_NOT_FOUND if there is no such file or no tokenizer in
 * it; AG_FORMAT names file, place and reason; AG_UNSUPPORTED names the unknown component (GGUF:
 * tokenizer.ggml.model or .pre). *out is NULL on failure. */
AG_API ag_status ag_tokenizer_load(const char *path, ag_tokenizer **out, ag_error *err);
/* Parses the text of a tokenizer.json. Messages use `name` as the file. */
AG_API ag_status ag_tokenizer_parse(const char *json, size_t len, const char *name,
                                    ag_tokenizer **out, ag_error *err);
/* Destroys a tokenizer. t may be NULL. */
AG_API void ag_tokenizer_destroy(ag_tokenizer *t);

/* Returns 1 + the largest id, including added tokens. Ids may have gaps. */
AG_API int32_t ag_tokenizer_vocab_size(const ag_tokenizer *t);
/* Returns the token's stored bytes ("\xc4\xa0the") and their number in *len, NULL for an id that
 * does not exist. Borrowed from t. */
AG_API const char *ag_tokenizer_token(const ag_tokenizer *t, int32_t id, size_t *len);
/* Returns the id with exactly these stored bytes, or -1. */
AG_API int32_t ag_tokenizer_id(const ag_tokenizer *t, const char *token, size_t len);
AG_API bool ag_tokenizer_is_special(const ag_tokenizer *t, int32_t id);

enum {
    AG_ENCODE_BOS = 1, /* add the ids at the start and end of a text: the post-processor's; GGUF:
                        * BOS and EOS according to add_bos_token and add_eos_token, or the default
                        * of the tokenizer's kind */
    AG_ENCODE_PARSE_SPECIAL = 2, /* encode "<|eot_id|>" as the special token, not as text. Added
                                  * tokens that are not special (GGUF: user-defined ones) are always
                                  * encoded as tokens. */
};

/* A growable list of ids. Zero-initialise it; free it with ag_ids_free(). */
typedef struct ag_ids {
    int32_t *data;
    size_t n, cap;
} ag_ids;
AG_API void ag_ids_free(ag_ids *ids);

/* Appends the ids of text[0..len) to *ids. NUL is an ordinary character. Fails with AG_FORMAT and
 * the offset for bytes that are not UTF-8. *ids is unchanged on failure. */
AG_API ag_status ag_tokenizer_encode(const ag_tokenizer *t, const char *text, size_t len,
                                     unsigned flags, ag_ids *ids, ag_error *err);

/* A growable byte string. If data is not NULL, a NUL follows data[len - 1]. Zero-initialise it;
 * free it with ag_text_free(). */
typedef struct ag_text {
    char *data;
    size_t len, cap;
} ag_text;
AG_API void ag_text_free(ag_text *text);

/* Appends the chat template (Jinja) of the model at `path`: from chat_template.jinja,
 * tokenizer_config.json or the GGUF file. Fails with AG_NOT_FOUND if the model has none. */
AG_API ag_status ag_chat_template_load(const char *path, ag_text *out, ag_error *err);

/* Decodes ids and appends the text; special tokens only with keep_special. The result equals that
 * of the tokenizers library: invalid byte sequences become U+FFFD. AG_INVALID names the first id
 * that does not exist. */
AG_API ag_status ag_tokenizer_decode(const ag_tokenizer *t, const int32_t *ids, size_t n,
                                     bool keep_special, ag_text *out, ag_error *err);

/* Decodes ids one by one, in O(new bytes). Appends only complete UTF-8 characters. The joined
 * pieces equal the result of ag_tokenizer_decode() for all ids. Used by one thread at a time. */
typedef struct ag_decoder ag_decoder;
/* Creates a decoder, which borrows t. Unless `continues` is true, the first piece is the start of a
 * text, where some formats strip a leading space. */
AG_API ag_status ag_decoder_create(const ag_tokenizer *t, bool keep_special, bool continues,
                                   ag_decoder **out, ag_error *err);
AG_API void ag_decoder_destroy(ag_decoder *d);
/* Appends the characters that id completes, if any, to *out. Byte tokens ("<0x41>") are held until
 * their run ends, because the whole run is either valid text or not. The decoder allocates only for
 * a run of more than 4 KB. */
AG_API ag_status ag_decoder_push(ag_decoder *d, int32_t id, ag_text *out, ag_error *err);
/* Appends the remaining text, where an incomplete character becomes U+FFFD, and resets the decoder.
 */
AG_API ag_status ag_decoder_flush(ag_decoder *d, ag_text *out, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
