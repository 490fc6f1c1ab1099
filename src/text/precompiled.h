/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's normaliser as a table ("Precompiled" in a tokenizer.json): what characters
 * become, in a double array as Darts (darts-clone) writes it, in front of the strings they become.
 */
#ifndef AG_TEXT_PRECOMPILED_H
#define AG_TEXT_PRECOMPILED_H

#include "text/bytes.h"

typedef struct ag_precompiled ag_precompiled;

/* base64: of 32 bits of size, the double array, the strings. */
ag_status ag_precompiled_parse(const char *base64, size_t n, const char *path, ag_precompiled **out,
                               ag_error *err);
void ag_precompiled_destroy(ag_precompiled *p);

/* Appends what valid UTF-8 becomes, exactly as the tokenizers library does it, which is not quite
 * as SentencePiece does. AG_LIMIT once out holds more than `limit` bytes. */
ag_status ag_precompiled_apply(const ag_precompiled *p, const char *text, size_t len, size_t limit,
                               ag_text *out, ag_error *err);

#endif
