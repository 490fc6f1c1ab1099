/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizer of a tokenizer: rewrites text before it is split. */
#ifndef AG_TEXT_NORMALIZER_H
#define AG_TEXT_NORMALIZER_H

#include "text/bytes.h"
#include "text/regex.h"

typedef struct ag_normalizer {
    struct ag_normalizer_step *steps; /* none: text is unchanged */
    size_t n, cap;
} ag_normalizer;

typedef enum ag_unicode_form { AG_NFC, AG_NFD, AG_NFKC, AG_NFKD } ag_unicode_form;

/* Add a step to a zeroed or growing normalizer. The caller must call ag_normalizer_free(), also
 * after a failure. */
ag_status ag_normalizer_add_form(ag_normalizer *nm, ag_unicode_form form, ag_error *err);
ag_status ag_normalizer_add_prepend(ag_normalizer *nm, const char *content, ag_error *err);
ag_status ag_normalizer_add_replace(ag_normalizer *nm, const char *pattern, const char *content,
                                    ag_error *err);
/* Reads the "normalizer" of a tokenizer.json. v may be NULL or null. */
ag_status ag_normalizer_read_json(ag_normalizer *nm, const json_t *v, ag_error *err);
void ag_normalizer_free(ag_normalizer *nm);

/* Normalises text[0..len) into *out. *scratch is overwritten. Sets *lost_start if the first
 * character no longer represents the start of the text, else leaves it unchanged. */
ag_status ag_normalizer_apply(const ag_normalizer *nm, const char *text, size_t len, ag_text *out,
                              ag_text *scratch, bool *lost_start, ag_error *err);

/* unicode_form.c: appends the normalisation form (Unicode annex 15) of text, which must be valid
 * UTF-8. */
ag_status ag_unicode_normalize(ag_unicode_form form, const char *text, size_t len, ag_text *out,
                               ag_error *err);

/* precompiled.c. SentencePiece's normaliser as a table ("Precompiled" in a tokenizer.json): a
 * double array in the format of darts-clone maps characters to strings. */
typedef struct ag_precompiled ag_precompiled;

/* Parses base64 of: the size in 32 bits, the double array, the strings. `path` is for messages. */
ag_status ag_precompiled_parse(const char *base64, size_t n, const char *path, ag_precompiled **out,
                               ag_error *err);
void ag_precompiled_destroy(ag_precompiled *p);

/* Appends the normalised form of text, which must be valid UTF-8. Equals the tokenizers library,
 * which differs slightly from SentencePiece. Fails with AG_LIMIT if out exceeds `limit` bytes. */
ag_status ag_precompiled_apply(const ag_precompiled *p, const char *text, size_t len, size_t limit,
                               ag_text *out, ag_error *err);

#endif
