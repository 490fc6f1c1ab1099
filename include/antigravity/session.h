/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation: a KV cache, a position, and the loop from prompt to text. Sessions of one model,
 * and of all models of one backend, are used by one thread at a time: see antigravity.h. */
#ifndef ANTIGRAVITY_SESSION_H
#define ANTIGRAVITY_SESSION_H

#include <antigravity/eviction.h>
#include <antigravity/model.h>
#include <antigravity/sampler.h>
#include <antigravity/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The Hadamard rotation of queries and keys before keys are kept: results are the same but for
 * rounding, and four bits hold such keys better. */
typedef enum ag_k_rotation {
    AG_K_ROTATION_AUTO, /* for Q4_0 keys */
    AG_K_ROTATION_OFF,
    AG_K_ROTATION_ON,
} ag_k_rotation;

typedef struct ag_session_params {
    /* 2048 slots in the cache. It also decides which frequencies a model with longrope rotates by.
     */
    uint32_t max_seq_len;
    uint32_t prefill_chunk;  /* 512 tokens at a time */
    ag_dtype k_type, v_type; /* F16: types of the cache */
    ag_k_rotation k_rotation;
    ag_eviction_params eviction; /* none; see ag_eviction_defaults() */
    uint64_t reserved[4];        /* 0: what later versions ask for */
} ag_session_params;
AG_API ag_session_params ag_session_defaults(void);

typedef struct ag_session ag_session;
typedef struct ag_kv_cache ag_kv_cache; /* kv_cache.h */

/* The model is borrowed and must outlive the session. Everything decoding needs is taken here.
 * params may be NULL. */
AG_API ag_status ag_session_create(ag_model *model, const ag_session_params *params,
                                   ag_session **out, ag_error *err);
AG_API void ag_session_destroy(ag_session *s);
/* Forgets every token; memory of the cache goes back to the system. */
AG_API void ag_session_reset(ag_session *s);
/* Takes the tokens from `position` on back: a draft that was refused, a text that was edited. What
 * follows is then as if they had never been consumed. There are no logits until the next token;
 * going back to where the session stands changes nothing. AG_INVALID, and nothing changes, for a
 * position beyond, and for one so far back that layers with a window no longer hold what its query
 * sees, or layers with a state what it was: ag_session_oldest_reachable() tells; 64 tokens back
 * from the furthest position that the session has reached, and all of them, can always go. (Of a
 * state: since the session was restored from a file, or a pass of it failed.)
 * With an eviction policy: what an eviction took in the meantime does not come back, so a session
 * taken back behind it knows less than one that never went on; and weights that the tokens taken
 * back gave to earlier ones stay in the sums of h2o. */
AG_API ag_status ag_session_truncate(ag_session *s, uint32_t position, ag_error *err);
/* From this position on the session can be taken back to any. To 0 it always can, and to some that
 * lie between where a state was kept. */
AG_API uint32_t ag_session_oldest_reachable(const ag_session *s);
/* After the caller put tokens into the session's cache by ag_kv_cache_update: the next token
 * follows the last one there. AG_INVALID, and nothing changes, where layers or heads end at
 * different positions, an eviction policy manages the cache, or layers keep a state, which such
 * tokens have not passed. */
AG_API ag_status ag_session_follow_cache(ag_session *s, ag_error *err);

/* A second session that stands where s stands, logits included, and goes its own way from there:
 * one prompt, several answers. What both have consumed is kept once; a block of 128 tokens is
 * copied when one of them changes it. Statistics of evictions begin anew. Each costs its logits,
 * and what a policy needs (ag_session_plan.eviction_bytes). Any of them may be destroyed first. */
AG_API ag_status ag_session_fork(ag_session *s, ag_session **out, ag_error *err);
/* The same under other rules: `eviction` takes the place of what s was created with, from the
 * fork's next token on; NULL: no policy. So one prefill serves several policies and budgets, and a
 * cache that was reduced once goes on without a budget. What s's policy knows of attention goes
 * along if the fork has the same policy; another one begins with what the fork reads: the end of
 * the prompt is enough for "snapkv" and "tova", "h2o" has sums of that alone. AG_INVALID for rules
 * that a session cannot have, and where the fork could not share what s keeps: another number of
 * attention sinks (protected_prefix; none without a policy), or a model with longrope whose
 * frequencies a policy changes. */
AG_API ag_status ag_session_fork_with(ag_session *s, const ag_eviction_params *eviction,
                                      ag_session **out, ag_error *err);

/* Tokens consumed so far: the logical position of the next one. */
AG_API uint32_t ag_session_position(const ag_session *s);
/* How many more tokens fit: the cache's slots and the positions the model was trained for are the
 * limits; with an eviction policy only the 2^31 positions that can be counted. */
AG_API uint32_t ag_session_capacity_left(const ag_session *s);
AG_API ag_kv_cache *ag_session_kv_cache(ag_session *s); /* borrowed */
AG_API const ag_model_info *ag_session_model_info(const ag_session *s);

/* What left the cache since the session began or was reset, and during the last call that consumed
 * tokens. Borrowed; all 0 where nothing ever leaves. */
AG_API const ag_eviction_stats *ag_session_evictions(const ag_session *s);
AG_API const ag_eviction_stats *ag_session_last_evictions(const ag_session *s);
/* What went to a file and came back; all 0 where nothing does. */
AG_API void ag_session_spilled(const ag_session *s, ag_spill_stats *out);
/* Tokens that stay after an eviction; 0: nothing ever leaves. */
AG_API uint32_t ag_session_kv_budget(const ag_session *s);
/* What the application knows of the system's memory, where a session watches it: heeded at the next
 * token, until something else is said. */
AG_API void ag_session_memory_hint(ag_session *s, ag_pressure level);
/* As it was when last looked at; NORMAL where nobody looks. */
AG_API ag_pressure ag_session_memory_pressure(const ag_session *s);

/* What a session will take, before there is one. */
typedef struct ag_session_plan {
    size_t kv_bytes;        /* a full cache */
    size_t workspace_bytes; /* activations of a prefill chunk, shared by a model's sessions */
    size_t state_bytes;     /* of layers that keep a state instead of keys and values */
    size_t eviction_bytes;  /* what the policy gathers and plans with, at most, and the prefix's
                             * copies */
    size_t draft_bytes;     /* on the CPU: tables of the text and 16 rows of logits, with which
                             * ag_session_generate() drafts; sessions of a model share the rows */
} ag_session_plan;
AG_API ag_status ag_session_plan_memory(const ag_model_info *info, const ag_session_params *params,
                                        ag_session_plan *out, ag_error *err);

/* Consumes n tokens (n > 0) in chunks; afterwards ag_session_logits() speaks of the token that
 * follows. AG_LIMIT if they do not fit, AG_INVALID for an id outside the vocabulary: nothing is
 * consumed then. Cancelled through progress: whole chunks before it stay consumed. */
AG_API ag_status ag_session_prefill(ag_session *s, const int32_t *ids, size_t n,
                                    ag_progress_fn progress, void *user, ag_error *err);
/* The same, and row(user, i, logits) is called for every i < n with the logits [n_vocab] that
 * follow ids[i]; they are borrowed for the call. Return false to cancel. */
typedef bool (*ag_logits_fn)(void *user, size_t i, const float *logits);
AG_API ag_status ag_session_score(ag_session *s, const int32_t *ids, size_t n, ag_logits_fn row,
                                  void *user, ag_error *err);
/* One token. Allocates nothing on the CPU; a device takes memory as the cache grows. */
AG_API ag_status ag_session_decode(ag_session *s, int32_t id, ag_error *err);
/* Ends the call of this session that is consuming tokens, or else the next one that would, with
 * AG_CANCELLED; ag_session_generate() then returns AG_OK and AG_FINISH_CANCELLED. A step of several
 * sessions is not interrupted: the next one ends. What a call has consumed in whole chunks stays
 * consumed, nothing else is, and the session goes on from there. A call ends once, however often
 * this is called. Any thread may call it, and a signal handler, as long as the
 * session is not being destroyed. */
AG_API void ag_session_cancel(ag_session *s);
/* [n_vocab] on the host, valid until the session is used again. NULL before the first token, after
 * a step that wanted none of its rows, and where a device has chosen for a sampler: after a step
 * with one, and during ag_session_generate(), at whose end they are there. */
AG_API const float *ag_session_logits(const ag_session *s);

/* ---- steps of several sessions ---- */

/* Rows of a step whose logits are wanted. */
typedef enum ag_logits_rows { AG_LOGITS_NONE, AG_LOGITS_LAST, AG_LOGITS_ALL } ag_logits_rows;

/* What one session contributes to a step: a prompt or a chunk of one, the token to decode, or
 * tokens of a draft to verify. */
typedef struct ag_step_item {
    ag_session *session;
    const int32_t *ids; /* [n] the next tokens, n > 0 */
    size_t n;
    ag_phase phase; /* what the tokens are: eviction policies ask */
    /* The last of them are what ag_session_logits() speaks of afterwards; ALL with a sampler and
     * without `row`, the last that it chose from. */
    ag_logits_rows logits;
    ag_logits_fn row; /* NULL, or called for every row that is wanted */
    void *row_user;
    /* NULL, or chooses: logits LAST, the token that follows into chosen[0]; ALL, what follows
     * ids[i] into chosen[i], as long as ids[i] is what was chosen before it (and then accepted, the
     * last choice is not), -1 from there on. On a device that can, rows stay there for this. */
    ag_sampler *sampler;
    int32_t *chosen;
    /* Of logits ALL and a sampler: NULL, or told of every choice before the next one is made. It
     * accepts the choice in the step's place, and returns false to have it be the last. The session
     * moves only afterwards; nothing may be asked of it meanwhile but to cancel. */
    bool (*on_chosen)(void *user, size_t i, int32_t id);
    void *on_chosen_user;
    /* NULL, or called for every row, whichever logits are wanted, with its hidden state
     * [ag_model_info.hidden_size] behind the last norm, of which logits are made; before those. */
    ag_logits_fn hidden;
    void *hidden_user;
} ag_step_item;

/* One pass over the weights for any mixture of rows of different sessions of one model. Fails as a
 * whole: on error no session has moved, though their logits are gone, what their samplers chose on
 * the way stands, and so may weights that the step had added to the sums of h2o or snapkv. An
 * eviction after the pass that fails (AG_NOMEM, copying blocks that a fork shares) is no error of
 * this step: it is pending, and done before the session's next step, fork, save, compression or
 * going back, which fails if it fails again. Results are those that each session has alone; where a
 * backend computes many rows otherwise than few, but for rounding. Takes memory for more rows or
 * sessions than there were in a step before. */
AG_API ag_status ag_session_step(const ag_step_item items[], size_t n, ag_error *err);

/* One token for each of n different sessions: a step of AG_PHASE_DECODE with their last logits. */
AG_API ag_status ag_session_decode_batch(ag_session *const sessions[], const int32_t ids[],
                                         size_t n, ag_error *err);

/* A prompt of n tokens is coming, in as many steps of AG_PHASE_PROMPT as the caller likes. Without
 * this each of them counts as a prompt of its own, which matters to eviction policies. A step that
 * fails, resetting, going back and restoring end it; a fork has none. */
AG_API ag_status ag_session_begin_prompt(ag_session *s, size_t n, ag_error *err);
/* How many of its tokens the next step should bring at most. */
AG_API size_t ag_session_prompt_rows(const ag_session *s);

/* ---- turns of a conversation ---- */

/* A turn of a conversation, a question and its answer, say, begins with the token at `position`,
 * which is at or behind where the session stands. Policies that let whole turns leave ask
 * ("turns"); without a policy nothing needs to know. Going back to where a turn begins, or before,
 * takes that back, and so does a step that fails before it. AG_INVALID before where the last one
 * begins, or the session stands. */
AG_API ag_status ag_session_begin_turn(ag_session *s, uint32_t position, ag_error *err);
/* From now on only the first n tokens never leave: eviction.protected_prefix until this is said,
 * and again after a reset. AG_INVALID if that is more than until now. */
AG_API ag_status ag_session_protect(ag_session *s, uint32_t n, ag_error *err);
/* As it is now; 0 without a policy. */
AG_API uint32_t ag_session_protected(const ag_session *s);

/* ---- compressing what has been read ---- */

/* How much of the cache stays, and how it is found out what: the text is replayed, chunk after
 * chunk, and what the model needs to repeat it stays, whatever will be asked about it. Source:
 * KVzip, arXiv:2505.23416. All lists are borrowed for the call. */
typedef struct ag_compress_params {
    /* Of these, if both are not 0, the one of fewer slots: */
    float keep_ratio;     /* of the slots held by layers that see everything */
    uint32_t keep_tokens; /* in the mean over their heads */
    /* 1: share of each chunk's tokens that are replayed, above 0. Below 1 they are those whose keys
     * are least like the others: KeyDiff's score over the whole cache, mean over layers and heads.
     */
    float replay;
    /* What announces the tokens to be repeated: the request (of the first chunk, "\n\nRepeat the
     * previous context exactly."; of the others, "\n\nRepeat the part of the previous context
     * exactly, starting with", and the last 8 tokens of the chunk before follow), and what a chat's
     * template puts behind a user's text, to have the model answer. Any may be empty. */
    const int32_t *instruction, *instruction_next, *suffix;
    size_t n_instruction, n_instruction_next, n_suffix;
    uint32_t chunk;  /* 2048 tokens; fewer where a chunk and its replay do not fit the cache's slots
                        or the positions that the model was trained for */
    uint32_t sinks;  /* 4 first tokens that are seen from every chunk, and stay */
    uint32_t recent; /* 0 newest tokens that stay in any case */
    ag_progress_fn progress; /* of the replay, in tokens; may be NULL */
    void *progress_user;
    uint64_t reserved[4]; /* 0: what later versions ask for */
} ag_compress_params;
AG_API ag_compress_params ag_compress_defaults(void);

/* Slots are counted over all KV heads of the layers that see everything. */
typedef struct ag_compress_report {
    size_t n_heads;
    size_t n_before, n_kept;
    size_t n_replayed;     /* tokens that were fed for it */
    size_t bytes_returned; /* of the cache; forks of the session may still hold them */
    double seconds;
} ag_compress_report;

/* Lets the slots leave that the session needs least to repeat what it has read. The best of all
 * layers and KV heads stay, so that heads keep different numbers; a policy goes on from there with
 * as many slots less, or more, in each, and its budget is then what heads hold in the mean.
 *   ids  [n_ids] all tokens that the session has consumed, as for ag_session_save(); slots that
 *        have left before do not come back
 *   out  what was done; may be NULL
 * Attention sinks and protected tokens stay even if they are more than what is asked for. Position
 * and logits remain. Layers with a window keep what they have. It takes the time of reading the
 * replayed tokens, and until its end the memory of a second cache. AG_INVALID for parameters that
 * make no sense and in the middle of a prompt; AG_UNSUPPORTED where layers have a state or every
 * layer a window; AG_LIMIT where max_seq_len leaves no space for any replay; AG_CANCELLED through
 * progress or ag_session_cancel(). The session is as it was after any error. */
AG_API ag_status ag_session_compress(ag_session *s, const int32_t *ids, size_t n_ids,
                                     const ag_compress_params *params, ag_compress_report *out,
                                     ag_error *err);

/* The largest score of each KV head in such a replay, between 0 and 1, the first p->sinks tokens
 * apart: what a text says about how the heads of a model differ, which
 * ag_eviction_params.head_shares of other sessions may take as it is. The session does not change.
 *   params  of which how much stays is not read
 *   maxima  [n] written: of all layers with a cache in order; 0 for those with a window
 * AG_INVALID if n is not the number of KV heads; else errors are those of ag_session_compress(). */
AG_API ag_status ag_session_head_maxima(ag_session *s, const int32_t *ids, size_t n_ids,
                                        const ag_compress_params *params, float *maxima, size_t n,
                                        ag_error *err);

/* ---- a session in a file ---- */

/* Writes all that the next tokens depend on: the cache as it is kept, evictions included, position,
 * logits, the score sums of the policy; and, if given, the n_ids ids consumed so far, which a
 * caller may want back: all of them, or none. tokenizer may be NULL; its vocabulary is then not
 * compared later. The file appears as a whole or not at all and may replace one that is there. It
 * holds the conversation: only its owner may read it. AG_IO says what the system refused. */
AG_API ag_status ag_session_save(ag_session *s, const char *path, const ag_tokenizer *tokenizer,
                                 const int32_t *ids, size_t n_ids, ag_error *err);
/* Takes the place of what the session holds: from here on it gives what the saved one would have
 * given, bit for bit on the same machine. Statistics of evictions begin anew. *ids, which is freed
 * first, receives the ids saved, perhaps none; ids may be NULL. Budget and max_seq_len need not be
 * those of the saved session, as long as its slots fit (AG_LIMIT). AG_UNSUPPORTED names what
 * differs (model, weights, tokenizer, types of the cache, policy, protected prefix, frequencies of
 * longrope), AG_FORMAT what is damaged; the session is then as it was. Until the file has been read
 * to its end both caches are held: reset a session that is used. */
AG_API ag_status ag_session_restore(ag_session *s, const char *path, const ag_tokenizer *tokenizer,
                                    ag_ids *ids, ag_error *err);

/* ---- the loop ---- */

typedef enum ag_finish {
    AG_FINISH_EOS,         /* the model ended the text */
    AG_FINISH_STOP_STRING, /* one of the stop strings appeared */
    AG_FINISH_MAX_TOKENS,
    AG_FINISH_CONTEXT, /* the cache or the trained positions are full */
    AG_FINISH_CANCELLED,
} ag_finish;
/* "stop", "stop", "length", "length", "cancelled": as other programs' interfaces say it. */
AG_API const char *ag_finish_reason(ag_finish f);
/* "eos", "stop_string", "max_tokens", "context", "cancelled" */
AG_API const char *ag_finish_detail(ag_finish f);

/* Whether tokens that are likely to follow are verified many at once. The text is the same, and so
 * is the state that sampler and session are left in. */
typedef enum ag_speculate {
    /* Where it is faster, which is measured meanwhile, and where rows of a step have the bits that
     * each has alone: on the CPU. */
    AG_SPECULATE_AUTO,
    AG_SPECULATE_OFF,
    AG_SPECULATE_ALWAYS, /* the longest drafts wherever there is one, whatever they cost */
} ag_speculate;

typedef struct ag_generate_params {
    int64_t max_tokens;            /* 128; 0: only prefill; -1: until something else stops */
    bool ignore_eos;               /* eos ids are tokens like others */
    const char *const *stop;       /* [n_stop] texts that end the generation, not emitted */
    size_t n_stop;                 /* need a tokenizer */
    ag_sampler *sampler;           /* borrowed */
    const ag_tokenizer *tokenizer; /* borrowed; NULL: tokens only */
    bool keep_special;             /* special tokens appear in the text */
    /* Called for every token as it is chosen, with the text that became certain by it (perhaps
     * none: a character may be unfinished, a stop string may be beginning), and once more with id
     * -1 for what is left at the end. Return false to cancel. A draft's tokens come while the step
     * that verifies them goes on: the session has moved only when it is over. */
    bool (*on_token)(void *user, int32_t id, const char *text, size_t len);
    void *on_token_user;
    ag_progress_fn progress; /* of the prefill, in tokens; may be NULL */
    void *progress_user;
    ag_speculate speculate;
    uint32_t draft_max; /* tokens of a draft; 0: 7, more than 14 are 14 */
    /* NULL, or a session of a smaller model with the same vocabulary, on the same thread, which
     * guesses where the text itself has no draft. Borrowed; what it held before is forgotten unless
     * it drafted for this session's last generation. Its context should hold the text. */
    ag_session *draft;
    uint64_t reserved[2]; /* 0: what later versions ask for */
} ag_generate_params;
AG_API ag_generate_params ag_generate_defaults(void);

typedef struct ag_generate_stats {
    ag_finish finish;
    size_t n_prompt, n_generated; /* an eos that ended the text is not counted */
    int32_t last_id;  /* the token chosen last, which was not fed (to be the first of what is fed
                       * next), an eos included; -1: none, or it was fed */
    double prefill_s; /* the prompt */
    double first_token_s;        /* from the call to the first token chosen */
    double decode_s;             /* tokens after the first */
    size_t kv_bytes;             /* in the cache at the end */
    ag_eviction_stats evictions; /* of this generation */
    /* Steps that verified a draft, tokens of their drafts, and of these what was chosen. */
    size_t n_draft_steps, n_drafted, n_accepted;
} ag_generate_stats;

/* Consumes the prompt and generates; without a prompt (n = 0) from the logits that are there,
 * AG_INVALID if there are none. Statistics are filled in also after an error, as far
 * as it came; being cancelled is no error. The session stands after the last token that was fed to
 * the model; the last chosen token of a generation is not fed: stats->last_id. */
AG_API ag_status ag_session_generate(ag_session *s, const int32_t *prompt, size_t n,
                                     const ag_generate_params *params, ag_generate_stats *stats,
                                     ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
