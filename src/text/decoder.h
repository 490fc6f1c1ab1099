/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of a tokenizer: turns the spellings of tokens into text. It is a chain of stages; each
 * reads and writes tokens. A stage that fuses all tokens passes the fused token on in chunks, so
 * decoding streams. */
#ifndef AG_TEXT_DECODER_H
#define AG_TEXT_DECODER_H

#include "text/regex.h"
#include "text/vocab.h"

typedef enum ag_decode_kind {
    AG_DECODE_REPLACE,       /* replaces matches of pattern by content */
    AG_DECODE_BYTE_FALLBACK, /* replaces "<0x41>" by the byte */
    AG_DECODE_BYTE_LEVEL,    /* fuses; replaces each character by its byte */
    AG_DECODE_FUSE,
    AG_DECODE_STRIP, /* strips content from both ends, at most strip_start and strip_stop times */
    AG_DECODE_METASPACE, /* replaces content by ' '; drops it in the first token if drop_first is
                            set */
    AG_DECODE_SPACED,    /* no decoder in the file: a space between tokens */
} ag_decode_kind;

typedef struct ag_decode_stage {
    ag_decode_kind kind;
    ag_pattern *pattern;
    char *content;
    size_t len;
    size_t strip_start, strip_stop;
    bool drop_first;   /* METASPACE */
    bool after_fusing; /* reads the fused token, in chunks */
} ag_decode_stage;

typedef struct ag_decode_chain {
    ag_decode_stage *stages;
    size_t n, cap;
} ag_decode_chain;

/* Add a stage to a zeroed or growing chain. The caller must call ag_decode_chain_free(), also after
 * a failure. After a stage that fuses only FUSE, STRIP and METASPACE are allowed. */
ag_status ag_decode_chain_add(ag_decode_chain *c, ag_decode_kind kind, ag_error *err);
ag_status ag_decode_chain_add_replace(ag_decode_chain *c, const char *pattern, const char *content,
                                      ag_error *err);
ag_status ag_decode_chain_add_strip(ag_decode_chain *c, const char *content, size_t start,
                                    ag_error *err);
/* Reads the "decoder" of a tokenizer.json. v may be NULL or null. */
ag_status ag_decode_chain_read_json(ag_decode_chain *c, const json_t *v, ag_error *err);
void ag_decode_chain_free(ag_decode_chain *c);

/* State of a stage between tokens. */
typedef struct ag_decode_state {
    ag_cursor cursor;
    ag_text pending;          /* REPLACE: the result; BYTE_FALLBACK: bytes of the current run */
    unsigned char partial[4]; /* BYTE_LEVEL: incomplete character */
    size_t n_partial;
    bool started;     /* a token was read; of a stage that fuses: the fused token has started */
    size_t to_strip;  /* STRIP: number of contents that may still be stripped at the start */
    size_t n_pending; /* STRIP: number of contents at the end so far, held back until it is known
                         whether they are at the end */
} ag_decode_state;

typedef struct ag_decode_run {
    const ag_decode_chain *chain;
    ag_decode_state *states; /* one per stage */
    bool continues;          /* the first token does not start a text */
} ag_decode_run;

/* Starts a decoding. max_len: maximum length of a spelling; its memory is allocated here. */
ag_status ag_decode_run_init(ag_decode_run *r, const ag_decode_chain *chain, size_t max_len,
                             bool continues, ag_error *err);
void ag_decode_run_free(ag_decode_run *r);
ag_status ag_decode_run_push(ag_decode_run *r, const char *s, size_t n, ag_text *out,
                             ag_error *err);
/* Ends the text and resets the state for another one. */
ag_status ag_decode_run_end(ag_decode_run *r, ag_text *out, ag_error *err);

#endif
