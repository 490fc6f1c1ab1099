/* SPDX-License-Identifier: Apache-2.0 */
/* Byte pair encoding (Sennrich et al., arXiv:1508.07909). Merges in the order of the tokenizers
 * library: the lowest rank first, the leftmost of equal ranks. */
#ifndef AG_TEXT_BPE_H
#define AG_TEXT_BPE_H

#include "text/vocab.h"

typedef struct ag_merge {
    int32_t left, right; /* left is -1 in an empty slot */
    uint32_t rank;       /* never UINT32_MAX */
    int32_t id;          /* the merged token */
} ag_merge;

/* Result of merging two symbols; id is -1 and rank UINT32_MAX if they do not merge. */
typedef struct ag_joined {
    uint32_t rank; /* the lowest is merged first */
    int32_t id;
} ag_joined;

enum { AG_BPE_SMALL_CHARS = 0x800, AG_BPE_MAX_SCORED = 1024 };

typedef struct ag_bpe {
    const ag_vocab *vocab; /* borrowed */
    ag_merge *merges;      /* open addressing over (left, right) */
    size_t n_merge_slots;  /* a power of two */
    uint32_t *ranks; /* by id, replaces merges: two symbols merge if the joined spelling is a token
                        of the model; NULL: merges is used */
    uint64_t *junctions; /* one bit per hashed pair of characters at which a merge can join */
    ag_text joined;      /* scratch of ag_bpe_add_merges() */
    int32_t unk_id; /* -1: unknown characters are dropped; -2: the file names a missing token */
    bool byte_fallback, fuse_unk, ignore_merges;
    int32_t byte_ids[256];                /* ids of "<0x00>" to "<0xFF>"; -1: none */
    int32_t char_ids[AG_BPE_SMALL_CHARS]; /* ids of one-character tokens; -1: none */
} ag_bpe;

/* Initialises a model without merges, options and unknown token, which the caller then sets. vocab
 * must be complete except for added tokens; it is borrowed until ag_bpe_free(), which the caller
 * must call also after a failure. */
ag_status ag_bpe_init(ag_bpe *bpe, const ag_vocab *vocab, ag_error *err);
void ag_bpe_free(ag_bpe *bpe);
/* bpe_json.c: initialises from the JSON object "model", instead of ag_bpe_init(). */
ag_status ag_bpe_read_json(ag_bpe *bpe, const json_t *model, const ag_vocab *vocab, ag_error *err);

/* Spellings of two tokens that merge; borrowed for the call. */
typedef struct ag_bpe_pair {
    const char *left, *right;
    size_t n_left, n_right;
} ag_bpe_pair;

enum { AG_BPE_BLOCK = 32 };

/* Reserves space for n merges. Must be called once, before the merges are added in order of rank,
 * at most AG_BPE_BLOCK per call, the first with rank `rank`. */
ag_status ag_bpe_reserve_merges(ag_bpe *bpe, size_t n, ag_error *err);
/* Adds merges. Fails with AG_FORMAT and the index *bad if a half or the merged spelling is not a
 * token of the model. The last of equal merges applies, as in the tokenizers library. */
ag_status ag_bpe_add_merges(ag_bpe *bpe, uint32_t rank, const ag_bpe_pair *pairs, size_t n,
                            size_t *bad, ag_error *err);
/* Selects merging by score, as SentencePiece does: the highest score of a joined spelling first.
 * scores: by id. Fails with AG_FORMAT if a score is NaN or a token of the model is longer than
 * AG_BPE_MAX_SCORED bytes. */
ag_status ag_bpe_set_scores(ag_bpe *bpe, const float *scores, ag_error *err);

ag_joined ag_bpe_join(const ag_bpe *bpe, int32_t left, int32_t right);
/* Returns false only if no merge can ever join a symbol that ends with `left` to one that starts
 * with `right`. */
bool ag_bpe_may_join(const ag_bpe *bpe, int32_t left, int32_t right);

/* Scratch memory of encoding. Zero-initialise; free with ag_bpe_scratch_free(). */
typedef struct ag_bpe_scratch {
    int32_t *symbols;
    size_t symbols_cap;
    struct ag_bpe_link *links; /* for long words */
    size_t links_cap;
    uint64_t *queue;
    size_t queue_cap;
} ag_bpe_scratch;
void ag_bpe_scratch_free(ag_bpe_scratch *s);

/* Appends the ids of one pre-token, which must be valid UTF-8. */
ag_status ag_bpe_encode(const ag_bpe *bpe, const char *word, size_t len, ag_bpe_scratch *s,
                        ag_ids *ids, ag_error *err);

/* Merge symbols[0..n) in place and compute how many remain: ag_bpe_merge_short() for n <=
 * AG_BPE_SHORT, ag_bpe_merge_long() for any n. */
size_t ag_bpe_merge_short(const ag_bpe *bpe, int32_t *symbols, size_t n);
ag_status ag_bpe_merge_long(const ag_bpe *bpe, ag_bpe_scratch *s, int32_t *symbols, size_t *n,
                            ag_error *err);

/* Maximum number of symbols of ag_bpe_merge_short(). */
enum { AG_BPE_SHORT = 32 };

#endif
