/* SPDX-License-Identifier: Apache-2.0 */
/* Byte pair encoding: Sennrich et al., arXiv:1508.07909, in the order of the tokenizers library:
 * the pair with the lowest rank first, the leftmost among equals. */
#ifndef AG_TEXT_BPE_H
#define AG_TEXT_BPE_H

#include "text/vocab.h"

typedef struct ag_merge {
    int32_t left, right; /* left is -1 in an empty slot */
    uint32_t rank;       /* never UINT32_MAX */
    int32_t id;          /* of the token that the two become */
} ag_merge;

/* What two symbols become: id is -1, and rank UINT32_MAX, when they do not merge. */
typedef struct ag_joined {
    uint32_t rank; /* lower ones come first */
    int32_t id;
} ag_joined;

enum { AG_BPE_SMALL_CHARS = 0x800, AG_BPE_MAX_SCORED = 1024 };

typedef struct ag_bpe {
    const ag_vocab *vocab; /* borrowed */
    ag_merge *merges;      /* open addressing over (left, right) */
    size_t n_merge_slots;  /* a power of two */
    uint32_t *ranks;       /* NULL, or by id and in place of merges: any two symbols merge whose
                            * spellings joined are a token of the model, the lowest rank first */
    uint64_t *junctions;   /* a bit for each pair of characters where some merge can join */
    ag_text joined;        /* scratch while merges are added */
    int32_t unk_id;        /* -1: unknown characters vanish; -2: the file names one it lacks */
    bool byte_fallback, fuse_unk, ignore_merges;
    int32_t byte_ids[256];                /* of "<0x00>" to "<0xFF>", or -1 */
    int32_t char_ids[AG_BPE_SMALL_CHARS]; /* of one-character tokens, or -1 */
} ag_bpe;

/* The vocabulary, which is complete but for added tokens, is borrowed until ag_bpe_free. A model
 * without merges, options or unk; they are set and added then. Whatever it returns, release with
 * ag_bpe_free. */
ag_status ag_bpe_init(ag_bpe *bpe, const ag_vocab *vocab, ag_error *err);
void ag_bpe_free(ag_bpe *bpe);
/* bpe_json.c: from the JSON object "model", in place of ag_bpe_init. */
ag_status ag_bpe_read_json(ag_bpe *bpe, const json_t *model, const ag_vocab *vocab, ag_error *err);

/* Two tokens that merge; the spellings are borrowed for a call. */
typedef struct ag_bpe_pair {
    const char *left, *right;
    size_t n_left, n_right;
} ag_bpe_pair;

enum { AG_BPE_BLOCK = 32 };

/* Room for n merges, once; then they are added, the best first, up to AG_BPE_BLOCK at a time and
 * with ranks from `rank` on. */
ag_status ag_bpe_reserve_merges(ag_bpe *bpe, size_t n, ag_error *err);
/* AG_FORMAT if one of the halves, or what they make together, is no token of the model: *bad is the
 * index of that pair. The last of two equal merges counts, as in the tokenizers library. */
ag_status ag_bpe_add_merges(ag_bpe *bpe, uint32_t rank, const ag_bpe_pair *pairs, size_t n,
                            size_t *bad, ag_error *err);
/* SentencePiece's kind of merging: scores by id, the highest first. AG_FORMAT for one that is not a
 * number, or a token of the model longer than AG_BPE_MAX_SCORED bytes. */
ag_status ag_bpe_set_scores(ag_bpe *bpe, const float *scores, ag_error *err);

ag_joined ag_bpe_join(const ag_bpe *bpe, int32_t left, int32_t right);
/* False only if no merge can ever join what ends with token left to what begins with right. */
bool ag_bpe_may_join(const ag_bpe *bpe, int32_t left, int32_t right);

/* What an encoding needs while it runs; zero-initialise, release with ag_bpe_scratch_free. */
typedef struct ag_bpe_scratch {
    int32_t *symbols;
    size_t symbols_cap;
    struct ag_bpe_link *links; /* of long words */
    size_t links_cap;
    uint64_t *queue;
    size_t queue_cap;
} ag_bpe_scratch;
void ag_bpe_scratch_free(ag_bpe_scratch *s);

/* Appends the ids of one pre-token, valid UTF-8. */
ag_status ag_bpe_encode(const ag_bpe *bpe, const char *word, size_t len, ag_bpe_scratch *s,
                        ag_ids *ids, ag_error *err);

/* Merges symbols[0..n) in place and returns how many are left: for a few, and for many. */
size_t ag_bpe_merge_short(const ag_bpe *bpe, int32_t *symbols, size_t n);
ag_status ag_bpe_merge_long(const ag_bpe *bpe, ag_bpe_scratch *s, int32_t *symbols, size_t *n,
                            ag_error *err);

/* Words of up to so many symbols take ag_bpe_merge_short. */
enum { AG_BPE_SHORT = 32 };

#endif
