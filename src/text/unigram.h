/* SPDX-License-Identifier: Apache-2.0 */
/* The unigram model: of all ways to write a text as tokens, the one whose scores add up to the
 * most. Kudo, arXiv:1804.10959, in the order of the tokenizers library. */
#ifndef AG_TEXT_UNIGRAM_H
#define AG_TEXT_UNIGRAM_H

#include "text/trie.h"
#include "text/vocab.h"

typedef struct ag_unigram {
    const ag_vocab *vocab; /* borrowed; NULL: the tokenizer has another model */
    ag_trie trie;
    double *scores;   /* by id */
    double unk_score; /* of a character that no token has */
    int32_t unk_id;   /* -1: there is none, and such a character is an error */
    bool byte_fallback;
    int32_t byte_ids[256]; /* of "<0x00>" to "<0xFF>", or -1 */
} ag_unigram;

/* From the JSON object "model", whose vocabulary `vocab` holds already and which is borrowed until
 * ag_unigram_free. Whatever it returns, release with that. */
ag_status ag_unigram_read_json(ag_unigram *u, const json_t *model, const ag_vocab *vocab,
                               ag_error *err);
void ag_unigram_free(ag_unigram *u);

/* What an encoding needs while it runs; zero-initialise, release with ag_unigram_scratch_free. */
typedef struct ag_unigram_scratch {
    struct ag_unigram_node *nodes;
    size_t nodes_cap;
} ag_unigram_scratch;
void ag_unigram_scratch_free(ag_unigram_scratch *s);

/* Appends the ids of one pre-token, valid UTF-8. */
ag_status ag_unigram_encode(const ag_unigram *u, const char *word, size_t len,
                            ag_unigram_scratch *s, ag_ids *ids, ag_error *err);

#endif
