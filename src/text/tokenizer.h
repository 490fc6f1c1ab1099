/* SPDX-License-Identifier: Apache-2.0 */
/* What a loaded tokenizer is made of. Nothing in it changes after loading. */
#ifndef AG_TEXT_TOKENIZER_H
#define AG_TEXT_TOKENIZER_H

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/postprocessor.h"
#include "text/pretokenizer.h"
#include "text/vocab.h"

struct ag_tokenizer {
    ag_vocab vocab;
    ag_bpe bpe;
    ag_normalizer normalizer;
    ag_added_tokens added;
    ag_pretokenizer pretokenizer;
    ag_postprocessor postprocessor;
    ag_decode_chain decode_chain;
};

#endif
