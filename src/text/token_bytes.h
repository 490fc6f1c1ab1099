/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that a token adds to a text which has begun. */
#ifndef AG_TEXT_TOKEN_BYTES_H
#define AG_TEXT_TOKEN_BYTES_H

#include "text/decoder.h"

typedef struct ag_token_bytes {
    const ag_tokenizer *tokenizer; /* borrowed */
    ag_decode_run run;
    bool byte_level, byte_fallback; /* stages of the decoder */
} ag_token_bytes;

/* Release with ag_token_bytes_close whatever this returns. */
ag_status ag_token_bytes_open(ag_token_bytes *b, const ag_tokenizer *t, ag_error *err);
void ag_token_bytes_close(ag_token_bytes *b);

/* Appends the bytes: unlike decoded text they may be parts of characters ("<0xC3>" is one byte).
 * Nothing for an id that does not exist. What decoders do at the start or end of a whole text (a
 * space stripped) is not done. */
ag_status ag_token_bytes_read(ag_token_bytes *b, int32_t id, ag_text *out, ag_error *err);

#endif
