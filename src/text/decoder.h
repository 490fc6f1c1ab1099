/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder of a tokenizer: the spellings of tokens to text. It is a chain of stages that
 * each take tokens and give tokens; a stage that fuses them all passes its one token on in chunks,
 * so that everything streams. */
#ifndef AG_TEXT_DECODER_H
#define AG_TEXT_DECODER_H

#include "text/regex.h"
#include "text/vocab.h"

typedef enum ag_decode_kind {
    AG_DECODE_REPLACE,       /* what matches the pattern becomes content */
    AG_DECODE_BYTE_FALLBACK, /* "<0x41>" becomes a byte */
    AG_DECODE_BYTE_LEVEL,    /* fuses; each character becomes its byte */
    AG_DECODE_FUSE,
    AG_DECODE_STRIP,     /* takes content off both ends, so many times at most */
    AG_DECODE_METASPACE, /* content becomes ' ', or nothing in the first token */
    AG_DECODE_SPACED,    /* no decoder at all: a space between tokens */
} ag_decode_kind;

typedef struct ag_decode_stage {
    ag_decode_kind kind;
    ag_pattern *pattern;
    char *content;
    size_t len;
    size_t strip_start, strip_stop;
    bool drop_first;   /* METASPACE */
    bool after_fusing; /* gets one token, in chunks */
} ag_decode_stage;

typedef struct ag_decode_chain {
    ag_decode_stage *stages;
    size_t n, cap;
} ag_decode_chain;

/* Stages are added to a zeroed chain; release with ag_decode_chain_free whatever these return.
 * Behind a stage that fuses only FUSE, STRIP and METASPACE may stand. */
ag_status ag_decode_chain_add(ag_decode_chain *c, ag_decode_kind kind, ag_error *err);
ag_status ag_decode_chain_add_replace(ag_decode_chain *c, const char *pattern, const char *content,
                                      ag_error *err);
ag_status ag_decode_chain_add_strip(ag_decode_chain *c, const char *content, size_t start,
                                    ag_error *err);
/* The "decoder" of a tokenizer.json; v may be NULL or null. */
ag_status ag_decode_chain_read_json(ag_decode_chain *c, const json_t *v, ag_error *err);
void ag_decode_chain_free(ag_decode_chain *c);

/* What a stage remembers between tokens. */
typedef struct ag_decode_state {
    ag_cursor cursor;
    ag_text pending;          /* the new spelling, or BYTE_FALLBACK: bytes whose run is not over */
    unsigned char partial[4]; /* BYTE_LEVEL: the beginning of a character */
    size_t n_partial;
    bool started;     /* a token came before (fusing stages: the one token has begun) */
    size_t to_strip;  /* STRIP: so many more may go at the start */
    size_t n_pending; /* STRIP: contents at the end so far, which may have to go */
} ag_decode_state;

typedef struct ag_decode_run {
    const ag_decode_chain *chain;
    ag_decode_state *states; /* one a stage */
    bool continues;          /* the first token is not the start of a text */
} ag_decode_run;

/* max_len: of a spelling; memory for such is taken here. */
ag_status ag_decode_run_init(ag_decode_run *r, const ag_decode_chain *chain, size_t max_len,
                             bool continues, ag_error *err);
void ag_decode_run_free(ag_decode_run *r);
ag_status ag_decode_run_push(ag_decode_run *r, const char *s, size_t n, ag_text *out,
                             ag_error *err);
/* The text ends; the run is as new afterwards. */
ag_status ag_decode_run_end(ag_decode_run *r, ag_text *out, ag_error *err);

#endif
