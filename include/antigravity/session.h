/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: a KV cache, a position, and the loop from prompt to text. One thread at a time may use
 * the sessions of all models of a backend: see antigravity.h. */
#ifndef ANTIGRAVITY_SESSION_H
#define ANTIGRAVITY_SESSION_H

#include <antigravity/eviction.h>
#include <antigravity/model.h>
#include <antigravity/sampler.h>
#include <antigravity/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Hadamard rotation of queries, and of keys before they are stored. Results differ only by
 * rounding; rotated keys lose less in four bits. */
typedef enum ag_k_rotation {
    AG_K_ROTATION_AUTO, /* on for Q4_0 keys only */
    AG_K_ROTATION_OFF,
    AG_K_ROTATION_ON,
} ag_k_rotation;

/* Parameters of a session. The comments state the defaults. */
typedef struct ag_session_params {
    /* Slots of the cache for each KV head; 2048. It also selects the RoPE frequencies of a longrope
     * model. */
    uint32_t max_seq_len;
    uint32_t prefill_chunk;      /* tokens of a prefill step; 512 */
    ag_dtype k_type, v_type;     /* types of the cache; F16 */
    ag_k_rotation k_rotation;    /* AUTO */
    ag_eviction_params eviction; /* no policy; see ag_eviction_defaults() */
    uint64_t reserved[4];        /* must be 0 */
} ag_session_params;
AG_API ag_session_params ag_session_defaults(void);

typedef struct ag_session ag_session;
typedef struct ag_kv_cache ag_kv_cache; /* kv_cache.h */

/* Creates a session. The model is borrowed and must outlive it. Allocates all memory that decoding
 * needs. params may be NULL, which selects the defaults. */
AG_API ag_status ag_session_create(ag_model *model, const ag_session_params *params,
                                   ag_session **out, ag_error *err);
AG_API void ag_session_destroy(ag_session *s);
/* Removes every token and returns the cache's memory to the system. */
AG_API void ag_session_reset(ag_session *s);
/* Removes the tokens from `position` on, such as a rejected draft or an edited text. Later results
 * are those of a session that never consumed them. There are no logits until the next token.
 * Truncating to the current position changes nothing.
 * Fails with AG_INVALID, and changes nothing, for a position above the current one, and for one
 * that layers with a window or a state can no longer restore: see ag_session_oldest_reachable().
 * Position 0 is always reachable, and so are the last 64 positions before the highest one that the
 * session has reached. For layers with a state, that range starts again when the session is
 * restored from a file or a pass fails. With an eviction policy, evicted tokens do not return, and
 * h2o's sums retain the attention that the removed tokens gave to earlier ones. */
AG_API ag_status ag_session_truncate(ag_session *s, uint32_t position, ag_error *err);
/* Returns the lowest position from which on ag_session_truncate() reaches every position. It also
 * reaches 0, and positions below with a saved state. */
AG_API uint32_t ag_session_oldest_reachable(const ag_session *s);
/* Moves the session to the end of its cache after the caller added tokens with
 * ag_kv_cache_update(). Fails with AG_INVALID, and changes nothing, if layers or heads end at
 * different positions, if an eviction policy manages the cache, or if layers have a state, which
 * such tokens would not update. */
AG_API ag_status ag_session_follow_cache(ag_session *s, ag_error *err);

/* Creates a session with the same tokens, logits and position as s, for several answers to one
 * prompt. Both share cache blocks of 128 tokens; a block is copied when one session changes it. The
 * fork's eviction statistics start at 0. A fork allocates its logits and its policy's memory
 * (ag_session_plan.eviction_bytes). Either session may be destroyed first. */
AG_API ag_status ag_session_fork(ag_session *s, ag_session **out, ag_error *err);
/* Forks s with other eviction parameters, which apply from the fork's next token on; NULL: no
 * policy. One prefill can serve several policies and budgets. If the policy is the same, the fork
 * copies its attention statistics. Another policy starts with the fork's next tokens: the end of a
 * prompt is enough for "snapkv" and "tova"; "h2o" then has sums of those tokens only.
 * Fails with AG_INVALID for parameters that a session cannot have, and if the fork cannot share the
 * cache of s: another protected_prefix (0 without a policy), or a longrope model whose frequencies
 * the policy changes. */
AG_API ag_status ag_session_fork_with(ag_session *s, const ag_eviction_params *eviction,
                                      ag_session **out, ag_error *err);

/* Returns the number of consumed tokens, which is the logical position of the next one. */
AG_API uint32_t ag_session_position(const ag_session *s);
/* Returns how many more tokens fit. The limits are the cache's slots and the positions the model
 * was trained for; with an eviction policy only the maximum position of 2^31. */
AG_API uint32_t ag_session_capacity_left(const ag_session *s);
AG_API ag_kv_cache *ag_session_kv_cache(ag_session *s); /* borrowed */
AG_API const ag_model_info *ag_session_model_info(const ag_session *s);

/* Return the statistics of evictions since the session was created or reset, and during the last
 * call that consumed tokens. Borrowed; all 0 without a policy. */
AG_API const ag_eviction_stats *ag_session_evictions(const ag_session *s);
AG_API const ag_eviction_stats *ag_session_last_evictions(const ag_session *s);
/* Writes the statistics of spilling; all 0 without a spill file. */
AG_API void ag_session_spilled(const ag_session *s, ag_spill_stats *out);
/* Returns how many tokens an eviction retains; 0 without a policy. */
AG_API uint32_t ag_session_kv_budget(const ag_session *s);
/* Sets the memory pressure that the application knows of. Applies from the next token until the
 * next call. Ignored if the session does not watch memory (ag_memory_watch). */
AG_API void ag_session_memory_hint(ag_session *s, ag_pressure level);
/* Returns the memory pressure at the last check; NORMAL if the session does not watch memory. */
AG_API ag_pressure ag_session_memory_pressure(const ag_session *s);

/* Memory that a session will need, known before it is created. */
typedef struct ag_session_plan {
    size_t kv_bytes;        /* a full cache */
    size_t workspace_bytes; /* activations of a prefill chunk, shared by a model's sessions */
    size_t state_bytes;     /* states of layers without keys and values */
    size_t eviction_bytes;  /* the policy's buffers and the unrotated keys of the prefix, at most */
    size_t draft_bytes;     /* n-gram tables and 16 rows of logits for drafts of
                             * ag_session_generate(); CPU only; sessions of a model share the rows */
} ag_session_plan;
AG_API ag_status ag_session_plan_memory(const ag_model_info *info, const ag_session_params *params,
                                        ag_session_plan *out, ag_error *err);

/* Consumes n tokens (n > 0) in chunks of prefill_chunk. Afterwards ag_session_logits() returns the
 * logits of the next token. Fails with AG_LIMIT if the tokens do not fit and with AG_INVALID for an
 * id outside the vocabulary; no token is consumed then. If `progress` cancels, the complete chunks
 * so far stay consumed. */
AG_API ag_status ag_session_prefill(ag_session *s, const int32_t *ids, size_t n,
                                    ag_progress_fn progress, void *user, ag_error *err);
/* Receives the logits [n_vocab] that follow ids[i], borrowed for the call. Returns false to cancel.
 */
typedef bool (*ag_logits_fn)(void *user, size_t i, const float *logits);
/* Prefills as ag_session_prefill() does and calls row(user, i, logits) for every i < n. */
AG_API ag_status ag_session_score(ag_session *s, const int32_t *ids, size_t n, ag_logits_fn row,
                                  void *user, ag_error *err);
/* Consumes one token. Allocates nothing on the CPU; a device allocates as the cache grows. */
AG_API ag_status ag_session_decode(ag_session *s, int32_t id, ag_error *err);
/* Cancels the call that is consuming tokens of this session, or the next such call if none is
 * running. That call returns AG_CANCELLED; ag_session_generate() returns AG_OK with
 * AG_FINISH_CANCELLED. A step of several sessions is not interrupted; the next step is. Complete
 * chunks stay consumed, and the session can be used again. Several calls of this function cancel
 * once. May be called from any thread and from a signal handler while the session exists. */
AG_API void ag_session_cancel(ag_session *s);
/* Returns the logits [n_vocab] of the next token in host memory, valid until the session's next
 * call. Returns NULL before the first token, after a step with AG_LOGITS_NONE, after a step whose
 * sampler ran on a device, and during ag_session_generate(). */
AG_API const float *ag_session_logits(const ag_session *s);

/* ---- steps of several sessions ---- */

/* Rows of a step whose logits are computed. */
typedef enum ag_logits_rows { AG_LOGITS_NONE, AG_LOGITS_LAST, AG_LOGITS_ALL } ag_logits_rows;

/* One session's tokens in a step: a chunk of a prompt, a token to decode, or a draft to verify. */
typedef struct ag_step_item {
    ag_session *session;
    const int32_t *ids; /* [n] the next tokens, n > 0 */
    size_t n;
    ag_phase phase; /* kind of the tokens, for eviction policies */
    /* Rows whose logits are computed. ag_session_logits() returns the last of them; for ALL with a
     * sampler and without `row`, the last row that the sampler chose from. */
    ag_logits_rows logits;
    ag_logits_fn row; /* called for every computed row; may be NULL */
    void *row_user;
    /* Chooses tokens; may be NULL. LAST: writes the next token to chosen[0]. ALL: writes the token
     * after ids[i] to chosen[i] while ids[i] equals the choice before it; writes -1 from the first
     * difference on. The sampler accepts all choices but the last. Logits stay on the device if it
     * can choose. */
    ag_sampler *sampler;
    int32_t *chosen;
    /* With ALL and a sampler: called after every choice; may be NULL. It must accept the choice
     * itself, in place of the step. Returns false to make this choice the last. The session does
     * not move before the step ends; only ag_session_cancel() may be called for it meanwhile. */
    bool (*on_chosen)(void *user, size_t i, int32_t id);
    void *on_chosen_user;
    /* Called for every row of the item with its hidden state [ag_model_info.hidden_size] after the
     * last norm, before the logits are computed; may be NULL. */
    ag_logits_fn hidden;
    void *hidden_user;
} ag_step_item;

/* Runs one pass over the weights for rows of different sessions of one model. The results equal
 * those of each session alone; they may differ by rounding on backends that are not batch
 * invariant. Allocates memory if a step has more rows or sessions than any step before.
 * Fails as a whole: on error no session has moved. Their logits are lost. Samplers of LAST are as
 * before the step, those of ALL keep the choices made. Attention sums of h2o and snapkv may keep
 * what the step added.
 * If an eviction after the pass fails (AG_NOMEM when copying blocks shared with a fork, or an error
 * of the policy's select_layer() or from_keys_layer()), the step succeeds and the eviction stays
 * pending. The session's next step, fork, save, compression or truncation performs it first, and
 * fails if it fails again. */
AG_API ag_status ag_session_step(const ag_step_item items[], size_t n, ag_error *err);

/* Decodes one token for each of n different sessions: a step of AG_PHASE_DECODE with
 * AG_LOGITS_LAST. */
AG_API ag_status ag_session_decode_batch(ag_session *const sessions[], const int32_t ids[],
                                         size_t n, ag_error *err);

/* Announces a prompt of n tokens that the caller feeds in any number of AG_PHASE_PROMPT steps.
 * Without this call eviction policies treat each such step as a prompt of its own. A failed step,
 * reset, truncation and restore end the prompt; a fork does not inherit it. */
AG_API ag_status ag_session_begin_prompt(ag_session *s, size_t n, ag_error *err);
/* Returns the maximum number of prompt tokens that the next step should contain. */
AG_API size_t ag_session_prompt_rows(const ag_session *s);

/* ---- turns of a conversation ---- */

/* Marks the start of a turn (a question and its answer, for example) at `position`, which must be
 * at or after the current position and the start of the last turn. The policy "turns" evicts
 * whole turns. Truncating to that start or before removes the mark, and so does a step that fails
 * before it. Fails with AG_INVALID for a lower position. */
AG_API ag_status ag_session_begin_turn(ag_session *s, uint32_t position, ag_error *err);
/* Reduces the protected prefix to the first n tokens, which are never evicted. It starts as
 * eviction.protected_prefix, also after a reset. Fails with AG_INVALID if n exceeds the current
 * value. */
AG_API ag_status ag_session_protect(ag_session *s, uint32_t n, ag_error *err);
/* Returns the length of the protected prefix in tokens; 0 without a policy. */
AG_API uint32_t ag_session_protected(const ag_session *s);

/* ---- compression by replay ---- */

/* Parameters of ag_session_compress() with their defaults. The model replays the text chunk by
 * chunk; slots that it needs to repeat the text are retained, whatever later questions are. Source:
 * KVzip, arXiv:2505.23416. All lists are borrowed for the call. */
typedef struct ag_compress_params {
    /* The size after compression. If both are set, the smaller one applies. */
    float keep_ratio;     /* share of the slots in layers without a window */
    uint32_t keep_tokens; /* mean number of slots of their heads */
    /* Share of each chunk's tokens that are replayed, above 0; 1. Below 1 the tokens with the most
     * distinctive keys are replayed: KeyDiff's score over the whole cache, averaged over layers and
     * heads. */
    float replay;
    /* Tokens around the replayed text; each list may be empty. instruction precedes the first chunk
     * ("\n\nRepeat the previous context exactly."). instruction_next and the last 8 tokens of the
     * chunk before precede each other chunk ("\n\nRepeat the part of the previous context exactly,
     * starting with"). suffix makes the model answer: the text of a chat template after the user's
     * message. */
    const int32_t *instruction, *instruction_next, *suffix;
    size_t n_instruction, n_instruction_next, n_suffix;
    uint32_t chunk;  /* tokens; 2048; fewer if a chunk and its replay exceed the cache's slots or
                      * the positions that the model was trained for */
    uint32_t sinks;  /* first tokens that every chunk attends to and that are retained; 4 */
    uint32_t recent; /* newest tokens that are always retained; 0 */
    ag_progress_fn progress; /* progress of the replay, in tokens; may be NULL */
    void *progress_user;
    uint64_t reserved[4]; /* must be 0 */
} ag_compress_params;
AG_API ag_compress_params ag_compress_defaults(void);

/* Result of a compression. Slots are summed over all KV heads of the layers without a window. */
typedef struct ag_compress_report {
    size_t n_heads;
    size_t n_before, n_kept;
    size_t n_replayed;     /* tokens fed for the replay */
    size_t bytes_returned; /* freed by the cache; forks of the session may still use them */
    double seconds;
} ag_compress_report;

/* Evicts the slots that the session needs least to repeat its text. Slots compete across all layers
 * and KV heads, so heads retain different numbers. A policy later keeps these differences; its
 * budget then limits the mean over heads.
 *   ids  [n_ids] all tokens that the session has consumed, as for ag_session_save(); slots evicted
 *        before do not return
 *   out  the result; may be NULL
 * Attention sinks and protected tokens are retained even if they exceed the requested size.
 * Position and logits do not change. Layers with a window are not compressed. Takes the time of
 * prefilling the replayed tokens, and until its end the memory of a second cache. Fails with
 * AG_INVALID for bad parameters and in the middle of a prompt; AG_UNSUPPORTED if layers have a
 * state or every layer has a window; AG_LIMIT if max_seq_len leaves no space for a replay;
 * AG_CANCELLED through progress or ag_session_cancel(). On error the session is unchanged. */
AG_API ag_status ag_session_compress(ag_session *s, const int32_t *ids, size_t n_ids,
                                     const ag_compress_params *params, ag_compress_report *out,
                                     ag_error *err);

/* Replays the text and writes the largest score of each KV head, 0 to 1, without the first
 * params->sinks tokens. The result can be used as ag_eviction_params.head_shares of other sessions.
 * The session does not change.
 *   params  keep_ratio and keep_tokens are ignored
 *   maxima  [n] written: KV heads of all layers with a cache, in order; 0 for layers with a window
 * Fails with AG_INVALID if n is not the number of KV heads, else as ag_session_compress(). */
AG_API ag_status ag_session_head_maxima(ag_session *s, const int32_t *ids, size_t n_ids,
                                        const ag_compress_params *params, float *maxima, size_t n,
                                        ag_error *err);

/* ---- a session in a file ---- */

/* Saves the session to a file: the cache after all evictions, the position, the logits, the
 * policy's score sums and, optionally, the ids of all n_ids consumed tokens (all or none).
 * tokenizer may be NULL; restoring then does not compare its vocabulary. The file replaces an
 * existing one atomically. It contains the conversation, so only its owner may read it. Fails with
 * AG_IO and the system's reason. */
AG_API ag_status ag_session_save(ag_session *s, const char *path, const ag_tokenizer *tokenizer,
                                 const int32_t *ids, size_t n_ids, ag_error *err);
/* Replaces the session's content by a saved one. Later results equal those of the saved session,
 * bit for bit on the same machine. Eviction statistics start at 0. *ids is freed and receives the
 * saved ids, if any; ids may be NULL. Budget and max_seq_len may differ if the saved slots fit,
 * else it fails with AG_LIMIT. AG_UNSUPPORTED names what differs: model, weights, tokenizer, types
 * of the cache, policy, protected prefix or longrope frequencies. AG_FORMAT names what is damaged.
 * On error the session is unchanged. Both caches are in memory until the file has been read; call
 * ag_session_reset() before to avoid that. */
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
/* Returns the reason as OpenAI's interface names it: "stop", "stop", "length", "length",
 * "cancelled". */
AG_API const char *ag_finish_reason(ag_finish f);
/* Returns "eos", "stop_string", "max_tokens", "context" or "cancelled". */
AG_API const char *ag_finish_detail(ag_finish f);

/* Speculative decoding: verifies several draft tokens in one step. On backends whose steps are
 * batch invariant (the CPU) the text does not change, nor do the final states of sampler and
 * session. On devices the last bits of logits differ, as they do between sizes of a prompt's
 * chunks. */
typedef enum ag_speculate {
    /* Drafts where measurements during the generation show a gain. Only on the CPU: elsewhere the
     * measured times would change the text. */
    AG_SPECULATE_AUTO,
    AG_SPECULATE_OFF,
    AG_SPECULATE_ALWAYS, /* the longest possible drafts, whatever they cost; on any backend */
} ag_speculate;

/* Parameters of a generation with their defaults. */
typedef struct ag_generate_params {
    int64_t max_tokens;      /* 128; 0: prefill only; -1: no limit */
    bool ignore_eos;         /* treat EOS ids as ordinary tokens */
    const char *const *stop; /* [n_stop] stop strings, not emitted; require a tokenizer */
    size_t n_stop;
    ag_sampler *sampler;           /* borrowed */
    const ag_tokenizer *tokenizer; /* borrowed; NULL: no text */
    bool keep_special;             /* write special tokens as text */
    /* Called for every chosen token with the text that it completes. The text is empty while a
     * character is incomplete or a stop string may be starting. Called at the end with id -1 for
     * remaining text. Returns false to cancel. Draft tokens are reported during the step that
     * verifies them; the session moves at the end of that step. */
    bool (*on_token)(void *user, int32_t id, const char *text, size_t len);
    void *on_token_user;
    /* Called before every choice with i = 0 and the logits [n_vocab] that it is made from; may be
     * NULL. Returns false to cancel. With on_logits no drafts are used. */
    ag_logits_fn on_logits;
    void *on_logits_user;
    ag_progress_fn progress; /* progress of the prefill, in tokens; may be NULL */
    void *progress_user;
    ag_speculate speculate;
    uint32_t draft_max; /* tokens of a draft, at most 14; 0: 7 */
    /* A session of a smaller model with the same vocabulary, on the same thread; may be NULL. It
     * drafts where the n-gram lookup finds no draft. Borrowed. Its content is removed unless it
     * drafted for this session's last generation. Its context should hold the whole text. */
    ag_session *draft;
    uint64_t reserved[2]; /* must be 0 */
} ag_generate_params;
AG_API ag_generate_params ag_generate_defaults(void);

typedef struct ag_generate_stats {
    ag_finish finish;
    size_t n_prompt, n_generated; /* tokens, without a final EOS */
    int32_t last_id; /* the last chosen token, EOS included, if it was not fed: feed it first in the
                      * next call; else -1 */
    double prefill_s;            /* time of the prompt */
    double first_token_s;        /* time from the call to the first chosen token */
    double decode_s;             /* time of the tokens after the first */
    size_t kv_bytes;             /* in the cache at the end */
    ag_eviction_stats evictions; /* evictions of this generation */
    /* Steps that verified a draft, tokens of these drafts, accepted tokens. */
    size_t n_draft_steps, n_drafted, n_accepted;
} ag_generate_stats;

/* Consumes the prompt and generates tokens. Without a prompt (n = 0) it continues from the
 * session's logits, and fails with AG_INVALID if there are none. Cancellation returns AG_OK.
 * `stats` is also filled after an error. The last chosen token is not fed to the model: see
 * last_id. */
AG_API ag_status ag_session_generate(ag_session *s, const int32_t *prompt, size_t n,
                                     const ag_generate_params *params, ag_generate_stats *stats,
                                     ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
