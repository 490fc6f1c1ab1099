/* SPDX-License-Identifier: Apache-2.0 */
/* Unigram model (Kudo, arXiv:1804.10959): chooses the tokens of a text with the highest sum of
 * scores. Ties are resolved as in the tokenizers library. */
#ifndef AG_TEXT_UNIGRAM_H
#define AG_TEXT_UNIGRAM_H

#include "text/trie.h"
#include "text/vocab.h"

typedef struct ag_unigram {
    const ag_vocab *vocab; /* borrowed; NULL: the tokenizer uses another model */
    ag_trie trie;
    double *scores;   /* by id */
    double unk_score; /* score of a character without a token */
    int32_t unk_id;   /* -1: such a character is an error */
    bool byte_fallback;
    int32_t byte_ids[256]; /* ids of "<0x00>" to "<0xFF>"; -1: none */
} ag_unigram;

/* Reads the JSON object "model". vocab must contain its vocabulary already and is borrowed until
 * ag_unigram_free(), which the caller must call also after a failure. */
ag_status ag_unigram_read_json(ag_unigram *u, const json_t *model, const ag_vocab *vocab,
                               ag_error *err);
void ag_unigram_free(ag_unigram *u);

/* Scratch memory of encoding. Zero-initialise; free with ag_unigram_scratch_free(). */
typedef struct ag_unigram_scratch {
    struct ag_unigram_node *nodes;
    size_t nodes_cap;
} ag_unigram_scratch;
void ag_unigram_scratch_free(ag_unigram_scratch *s);

/* Appends the ids of one pre-token, which must be valid UTF-8. */
ag_status ag_unigram_encode(const ag_unigram *u, const char *word, size_t len,
                            ag_unigram_scratch *s, ag_ids *ids, ag_error *err);

#endif
