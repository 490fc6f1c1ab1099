/* SPDX-License-Identifier: Apache-2.0 */
/* Components of a loaded tokenizer. Immutable after loading. */
#ifndef AG_TEXT_TOKENIZER_H
#define AG_TEXT_TOKENIZER_H

#include "formats/weight_source.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/postprocessor.h"
#include "text/pretokenizer.h"
#include "text/unigram.h"
#include "text/vocab.h"

struct ag_tokenizer {
    ag_vocab vocab;
    ag_bpe bpe;         /* the model, unless unigram.vocab is set */
    ag_unigram unigram; /* the model if its vocab is not NULL */
    ag_normalizer normalizer;
    ag_added_tokens added;
    ag_pretokenizer pretokenizer;
    ag_postprocessor postprocessor;
    ag_decode_chain decode_chain;
};

/* vocabulary.c: builds a tokenizer from the lists of a GGUF file. v is borrowed for the call;
 * `name` is the file in messages. *out is NULL after a failure: AG_UNSUPPORTED names an unknown
 * model or pre-tokenizer, AG_FORMAT the number of the token or merge. */
ag_status ag_tokenizer_from_vocabulary(const ag_source_vocabulary *v, const char *name,
                                       ag_tokenizer **out, ag_error *err);

/* Id range: a range of a text that is encoded as these ids. Without ids it only divides the text.
 */
typedef struct ag_id_range {
    size_t begin, end;
    int32_t *ids; /* only read */
    size_t n_ids;
} ag_id_range;
/* Encodes like ag_tokenizer_encode() without flags, with these ranges, which are sorted and must
 * not overlap. The text between two ranges is encoded as one piece; no special token is found in
 * it. (encode.c) */
ag_status ag_tokenizer_encode_ranges(const ag_tokenizer *t, const char *text, size_t len,
                                     const ag_id_range *ranges, size_t n, ag_ids *ids,
                                     ag_error *err);

/* tokenizer.c: returns a checksum of all spellings and whether each is special. */
uint64_t ag_tokenizer_checksum(const ag_tokenizer *t);

#endif
