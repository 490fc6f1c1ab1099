/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens leave a KV cache that has reached its budget.
 *
 * A policy decides, the cache moves: a policy is a table of pure functions from what is known about
 * the slots of one KV head to the slots that stay. Writing one takes a file; give its table to
 * ag_eviction_params.policy. */
#ifndef ANTIGRAVITY_EVICTION_H
#define ANTIGRAVITY_EVICTION_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the tokens of a step are. */
typedef enum ag_phase {
    AG_PHASE_PROMPT, /* a text that is read */
    AG_PHASE_DECODE, /* one token that has been chosen */
    AG_PHASE_VERIFY, /* tokens that may be taken back: nothing leaves because of them, and what they
                        attend to does not count */
} ag_phase;

/* What a policy's importance of a slot is made of; found out only for a policy that asks. */
typedef enum ag_importance {
    AG_IMPORTANCE_NONE,   /* nothing: costs nothing */
    AG_IMPORTANCE_WINDOW, /* attention of the last snapkv_window queries of a prefill, summed */
    AG_IMPORTANCE_TOTAL,  /* that of every prefill, and of every token decoded since */
    AG_IMPORTANCE_NEWEST, /* attention of the newest query, mean over all heads: one set a layer */
    AG_IMPORTANCE_KEYS,   /* from_keys() */
    AG_IMPORTANCE_CHUNK,  /* from_keys(), which also gets the attention inside the chunk of a prompt
                             that a slot lies in: ag_eviction_inputs.sums */
} ag_importance;

/* The slots of one KV head, in order of position. Slots [0, n_protected) stay, the n_expired that
 * follow leave, the newest n_recent stay: n_protected + n_recent <= n_keep <= n_slots - n_expired.
 */
typedef struct ag_eviction_view {
    uint32_t n_slots, n_protected, n_expired, n_recent;
    uint32_t n_scored;         /* slots [0, n_scored) were there when importance was found */
    const uint32_t *positions; /* [n_slots] logical, ascending */
    const float *importance;   /* [n_slots], higher stays; NULL if the policy did not ask */
    uint32_t *work;            /* [n_slots] to write on */
    float *values;             /* the same */
    const uint32_t *turns;     /* [n_turns] positions at which turns of a conversation begin,
                                  ascending: ag_session_begin_turn() */
    size_t n_turns;
} ag_eviction_view;

typedef struct ag_eviction_params ag_eviction_params;

/* The slots of one KV head, in order of position, when their importance is found. */
typedef struct ag_eviction_inputs {
    const struct ag_backend *backend; /* the cache's */
    size_t n_slots, dim;
    size_t n_protected;        /* the first ones, which stay whatever they are worth */
    float removed;             /* share of the layer's slots that will leave */
    const uint32_t *positions; /* [n_slots] logical, ascending */
    float *keys;               /* [n_slots, dim], may be overwritten; turned to their positions, or
                                  with `unrotated` as they were before */
    const float *values;       /* [n_slots, dim]; NULL unless the policy wants them */
    /* CHUNK, else NULL: a prompt's tokens from position 8 on are cut into chunks of 256 positions,
     * every token sees all of its chunk, those behind it too, and sums[slot] is the weight that a
     * slot received so, averaged over the query group and summed over the chunk's queries. 0: none
     * is known, for the slot is of no chunk (positions below 8, the last 4 of a prompt, tokens that
     * were decoded). */
    const float *sums;
    float *importance; /* [n_slots], written */
    float *more;       /* [n_slots] for compare(); NULL without it */
    float *work;       /* [work_floats(dim)] to write on: zeros at first, then what an earlier head
                          left there, which may have been of another size */
} ag_eviction_inputs;

/* Every function gets `user`; parameters of the policy's own arrive in p->policy_params. */
typedef struct ag_eviction_policy {
    const char *name;
    ag_importance importance;
    uint32_t prefill_block; /* longest chunk of a prefill whose budget is reached; 0: any */
    bool whole_prefill;     /* prefers one eviction at the end of a prompt to one per chunk */
    void *user;             /* borrowed; the policy's own */
    /* optional; NULL: whatever its parameters are, they are fine. Fills *err (which is not NULL) if
     * they are not. */
    ag_status (*check)(void *user, const ag_eviction_params *p, ag_error *err);
    /* optional; NULL: 1024. The budget in tokens where none is asked for. */
    uint32_t (*default_budget)(void *user, const ag_eviction_params *p);
    /* keep[0..n_keep) := the slots that stay, ascending; keep has space for n_slots. NULL: this
     * policy never evicts. */
    void (*select)(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                   uint32_t n_keep, uint32_t *keep);
    /* optional; NULL: as summed. What a prefill's queries, the last n_window slots, gave to the
     * n_slots of one KV head becomes importance, in place. values [n_slots] to write on. */
    void (*normalise)(void *user, const ag_eviction_params *p, float *importance, uint32_t n_slots,
                      uint32_t n_window, float *values);
    /* Required with AG_IMPORTANCE_KEYS and _CHUNK, else NULL: writes in->importance. Heads may be
     * asked about by several threads at once. */
    void (*from_keys)(void *user, const ag_eviction_params *p, const ag_eviction_inputs *in);
    bool unrotated, with_values; /* what from_keys() gets */
    /* optional; NULL: 0. Floats that from_keys() has to write on, for heads of `dim` values. */
    size_t (*work_floats)(void *user, size_t dim);
    /* optional; NULL: importance is as from_keys() left it. After from_keys() of all heads of a
     * layer: makes their importance final. Of each head n_slots, removed, importance and more are
     * there. */
    void (*compare)(void *user, const ag_eviction_params *p, const ag_eviction_inputs *heads,
                    size_t n_heads);
    /* optional; NULL: n_keep. How many slots stay where n_keep are the most, for a policy whose
     * slots leave several together: at least n_protected and, if that many may stay, n_recent. */
    uint32_t (*count)(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                      uint32_t n_keep);
} ag_eviction_policy;

/* NULL if there is none of that name. */
AG_API const ag_eviction_policy *ag_eviction_policy_find(const char *name);
/* The i-th, NULL past the end; the first is "none". */
AG_API const ag_eviction_policy *ag_eviction_policy_at(size_t i);

typedef enum ag_kv_prefill {
    AG_KV_PREFILL_AUTO, /* whole for a policy that prefers it while the prompt fits, else bounded */
    AG_KV_PREFILL_BOUNDED, /* back to the budget after every chunk */
    AG_KV_PREFILL_WHOLE,   /* once, at the end; the prompt must fit the cache */
} ag_kv_prefill;

/* How the slots that a layer keeps are shared among its heads. Layers with a window that ends
 * before the trained length does share evenly. */
typedef enum ag_head_budget {
    AG_HEAD_BUDGET_EVEN,     /* every head keeps as many */
    AG_HEAD_BUDGET_ADAPTIVE, /* a fifth evenly, the rest where the layer's best scores are: AdaKV,
                                arXiv:2407.11550; for policies with scores, those that ask for
                                importance. One that ranks a layer's heads together (NEWEST) then
                                ranks each by its own attention */
    AG_HEAD_BUDGET_SHARES,   /* a fifth evenly, the rest as head_shares says; for any policy */
    AG_HEAD_BUDGET_VALUES,   /* ADAPTIVE with values counted: what attention gives a slot (WINDOW,
                                TOTAL, NEWEST) becomes what the head's output would lose with it, by
                                which heads share and the policy chooses */
} ag_head_budget;
AG_API const char *ag_head_budget_name(ag_head_budget b); /* "even" ... */

typedef enum ag_pooling { AG_POOL_AVERAGE, AG_POOL_MAX } ag_pooling;

/* Memory pressure, mildest first. */
typedef enum ag_pressure {
    AG_PRESSURE_NORMAL,
    AG_PRESSURE_SOFT,
    AG_PRESSURE_HARD,
    AG_PRESSURE_CRITICAL,
} ag_pressure;
AG_API const char *ag_pressure_name(ag_pressure level); /* "normal" ... */

/* What is known about the system's memory at one moment. */
typedef struct ag_memory_signals {
    bool has_available, has_group, has_stalls; /* which of these are known */
    uint64_t available;                        /* bytes: MemAvailable */
    uint64_t group_used, group_limit;          /* bytes: this process's control group */
    double stalled_some, stalled_full;         /* share of the last 2 s, 0 to 1: PSI */
    ag_pressure hint;                          /* what the application says */
} ag_memory_signals;

/* Watching the system's memory while tokens are consumed. */
typedef struct ag_memory_watch {
    uint64_t threshold_bytes; /* 0: not watched; less available than this is pressure (256 MB) */
    float target_ratio;       /* 0.75: share of the cache that stays when pressure begins; two and
                                 one third of it when it grows */
    bool soft_waits;          /* soft pressure takes nothing: whoever has the session sees it
                                 (ag_session_memory_pressure()) and makes room when it suits, say by
                                 ag_session_compress(); what is harder takes at once, as ever */
    const char *system_root;  /* NULL: "/", where proc and sys are; borrowed by the session */
    /* optional; NULL: the system's files, a monotonic clock */
    void (*read)(void *user, uint64_t now_ms, ag_memory_signals *out);
    uint64_t (*clock_ms)(void *user);
    void *user;
} ag_memory_watch;

typedef enum ag_eviction_reason {
    AG_EVICTION_BUDGET,  /* the cache had passed its budget */
    AG_EVICTION_TRAINED, /* slots as far from the next token as the model was trained for */
    AG_EVICTION_MEMORY,  /* the system runs short of memory */
} ag_eviction_reason;
AG_API const char *ag_eviction_reason_name(ag_eviction_reason r); /* "budget" ... */

/* One eviction, over all layers and heads. */
typedef struct ag_eviction {
    ag_eviction_reason reason;
    ag_pressure level;         /* NORMAL unless the reason is memory */
    const char *policy;        /* its name */
    uint32_t position;         /* logical, of the next token */
    uint32_t n_before, n_kept; /* tokens in the fullest head; of a layer whose heads share its slots
                                  by their scores, in their mean */
    size_t bytes_returned;     /* to the system */
    double seconds;            /* it took */
} ag_eviction;
typedef void (*ag_eviction_fn)(void *user, const ag_eviction *e);

/* Several of them. */
typedef struct ag_eviction_stats {
    uint64_t n_evictions, n_tokens; /* tokens of the fullest head that left */
    uint64_t bytes_returned;
    double seconds, longest_s;
    ag_eviction last; /* all 0 while there is none */
} ag_eviction_stats;

/* Of the policy compactor; zeros: as it is meant. */
typedef struct ag_compactor_params {
    const float *sketch;  /* [head_dim, min(48, head_dim)] in place of its own random numbers */
    float query_scale;    /* of q . k inside chunks, in place of the model's; 0: the model's */
    uint64_t reserved[4]; /* 0: what later versions ask for */
} ag_compactor_params;

/* Slots that an eviction removes go to a file, and come back when queries ask for them. The first
 * tokens and the newest, and layers with a window, have no part in it. */
typedef struct ag_spill_params {
    /* A directory, in which a file without a name is made, or a file that is not there yet (mode
     * 0600), removed with the session. Forks use their session's. */
    const char *path;
    uint64_t max_bytes; /* of the file; beyond, the oldest leave it; 0: no limit */
    uint32_t block;     /* slots of a KV head that go and come together, at most 128; 0: 16 */
    bool exact;         /* rows as the cache keeps them; else keys as Q8_0 and values as Q4_0 where
                           that is smaller */
    uint64_t reserved[4]; /* 0: what later versions ask for */
} ag_spill_params;

/* Slots are those of single KV heads, since the session began or was reset. A file that cannot be
 * made, written or read, or that is damaged, costs the slots in it and nothing else. */
typedef struct ag_spill_stats {
    uint64_t n_spilled, n_reloaded;
    uint64_t n_dropped;  /* left the file for max_bytes */
    uint64_t n_failed;   /* could not be written, or not be read back */
    uint64_t file_bytes; /* in use, of the session and its forks */
    const char *trouble; /* the first thing that went wrong with the file; NULL: nothing. Borrowed
                            as long as the session */
} ag_spill_stats;

struct ag_eviction_params {
    const ag_eviction_policy
        *policy;               /* NULL: none; where memory is watched, keydiff under pressure */
    const void *policy_params; /* what that policy says they are, borrowed; of the library's,
                                  compactor: ag_compactor_params or NULL; others: NULL */
    /* The budget: of those that are not 0 the one of fewest tokens; if all are 0, the
     * policy's own. It leaves max_seq_len at least one token more. */
    uint32_t budget_tokens;
    size_t budget_bytes;        /* of the whole cache, in whole blocks of 128 tokens */
    float budget_ratio;         /* of max_seq_len */
    uint32_t protected_prefix;  /* 4 first tokens that never leave */
    uint32_t recent;            /* 32 newest that always stay; h2o: at least half the budget */
    uint32_t slack;             /* 64 tokens over the budget before decoding evicts */
    uint32_t window;            /* 1024, of sliding */
    ag_kv_prefill prefill;      /* AUTO */
    uint32_t snapkv_window;     /* 32 last queries of a prefill */
    uint32_t snapkv_kernel;     /* 5, odd: slots pooled */
    ag_pooling snapkv_pool;     /* AVERAGE */
    ag_head_budget head_budget; /* EVEN */
    /* SHARES: [n_head_shares] of every KV head of all layers with a cache, in order, borrowed; at
     * least 0, and compared with the others of the layer. ag_session_head_maxima() finds some. */
    const float *head_shares;
    size_t n_head_shares;
    ag_memory_watch memory;
    ag_eviction_fn on_eviction; /* may be NULL; called during the call that evicted */
    void *on_eviction_user;
    /* NULL: what leaves is lost. Copied by a session; borrowed by an ag_serving's requests as long
     * as the ag_serving. AG_UNSUPPORTED for a cache in a device's memory. */
    const ag_spill_params *spill;
    uint64_t reserved[4]; /* 0: what later versions ask for */
};
AG_API ag_eviction_params ag_eviction_defaults(void);

#ifdef __cplusplus
}
#endif
#endif
