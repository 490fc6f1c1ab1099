/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's normaliser as a table ("Precompiled" in a tokenizer.json): a double array in the
 * format of darts-clone maps characters to strings. */
#ifndef AG_TEXT_PRECOMPILED_H
#define AG_TEXT_PRECOMPILED_H

#include "text/bytes.h"

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
