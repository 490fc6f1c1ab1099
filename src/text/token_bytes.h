/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that a token appends to a text that has begun. */
#ifndef AG_TEXT_TOKEN_BYTES_H
#define AG_TEXT_TOKEN_BYTES_H

#include "text/decoder.h"

typedef struct ag_token_bytes {
    const ag_tokenizer *tokenizer; /* borrowed */
    ag_decode_run run;
    bool byte_level, byte_fallback; /* the decoder has this stage */
} ag_token_bytes;

/* The caller must call ag_token_bytes_close(), also after a failure. */
ag_status ag_token_bytes_open(ag_token_bytes *b, const ag_tokenizer *t, ag_error *err);
void ag_token_bytes_close(ag_token_bytes *b);

/* Appends the bytes of a token, nothing if id does not exist. Unlike decoded text they may be
 * incomplete characters: "<0xC3>" is one byte. Stages do not treat the token as start or end of a
 * text, so no space is stripped. */
ag_status ag_token_bytes_read(ag_token_bytes *b, int32_t id, ag_text *out, ag_error *err);

#endif
