/* SPDX-License-Identifier: Apache-2.0 */
/* What a loaded tokenizer is made of. Nothing in it changes after loading. */
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
    ag_bpe bpe;         /* the model, unless: */
    ag_unigram unigram; /* its vocab is not NULL */
    ag_normalizer normalizer;
    ag_added_tokens added;
    ag_pretokenizer pretokenizer;
    ag_postprocessor postprocessor;
    ag_decode_chain decode_chain;
};

/* vocabulary.c: from the lists of a file without a tokenizer.json; v is only read, `name` stands in
 * messages for the file. *out is NULL after a failure: AG_UNSUPPORTED names the model or the
 * pre-tokenizer that is not known, AG_FORMAT the number of the token or merge. */
ag_status ag_tokenizer_from_vocabulary(const ag_source_vocabulary *v, const char *name,
                                       ag_tokenizer **out, ag_error *err);

#endif
