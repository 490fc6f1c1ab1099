/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction policies: select the slots that a KV cache over its budget retains.
 *
 * A policy is a table of pure functions. They get facts about the slots of one KV head and return
 * the slots to retain; the cache moves the data. A new policy is one source file, whose table is
 * passed in ag_eviction_params.policy. */
#ifndef ANTIGRAVITY_EVICTION_H
#define ANTIGRAVITY_EVICTION_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a step's tokens. */
typedef enum ag_phase {
    AG_PHASE_PROMPT, /* tokens of a prompt */
    AG_PHASE_DECODE, /* one chosen token */
    AG_PHASE_VERIFY, /* draft tokens that may be removed: they cause no eviction, and their
                        attention is not counted */
} ag_phase;

/* The source of a policy's importance scores. Only the requested one is computed. */
typedef enum ag_importance {
    AG_IMPORTANCE_NONE,   /* no scores */
    AG_IMPORTANCE_WINDOW, /* sum of the attention of a prefill's last snapkv_window queries */
    AG_IMPORTANCE_TOTAL,  /* sum of the attention of all queries since the session started */
    AG_IMPORTANCE_NEWEST, /* attention of the newest query, averaged over the layer's heads */
    AG_IMPORTANCE_KEYS,   /* from_keys() */
    AG_IMPORTANCE_CHUNK,  /* from_keys() with the attention inside chunks of a prompt:
                             ag_eviction_inputs.sums */
} ag_importance;

/* The slots of one KV head, in order of position. A policy must retain slots [0, n_protected) and
 * the newest n_recent, and must evict the n_expired slots after n_protected. It holds that
 * n_protected + n_recent <= n_keep <= n_slots - n_expired. */
typedef struct ag_eviction_view {
    uint32_t n_slots, n_protected, n_expired, n_recent;
    uint32_t n_scored;         /* slots [0, n_scored) have scores; newer slots came afterwards */
    const uint32_t *positions; /* [n_slots] logical, ascending */
    const float *importance;   /* [n_slots], larger is retained; NULL for AG_IMPORTANCE_NONE */
    uint32_t *work;            /* [n_slots] scratch */
    float *values;             /* [n_slots] scratch */
    const uint32_t *turns;     /* [n_turns] first positions of the conversation's turns, ascending:
                                  ag_session_begin_turn() */
    size_t n_turns;
} ag_eviction_view;

typedef struct ag_eviction_params ag_eviction_params;

/* Inputs of from_keys(): the slots of one KV head, in order of position. */
typedef struct ag_eviction_inputs {
    const struct ag_backend *backend; /* backend of the cache */
    size_t n_slots, dim;
    size_t n_protected;        /* first slots, retained whatever their scores */
    float removed;             /* share of the layer's slots that will be evicted */
    const uint32_t *positions; /* [n_slots] logical, ascending */
    float *keys;               /* [n_slots, dim], may be overwritten; rotated to their positions, or
                                  not rotated if the policy has `unrotated` */
    const float *values;       /* [n_slots, dim]; NULL unless the policy has `with_values` */
    /* AG_IMPORTANCE_CHUNK only, else NULL. A prompt from position 8 on is divided into chunks of
     * 256 positions. Every token attends to its whole chunk, later tokens included. sums[slot] is
     * the weight that the slot received, averaged over the query group and summed over the chunk's
     * queries. It is 0 for slots outside chunks: positions below 8, the last 4 of a prompt, and
     * decoded tokens. */
    const float *sums;
    float *importance; /* [n_slots], written */
    float *more;       /* [n_slots] for compare(); NULL without it */
    float *work;       /* [work_floats(dim)] scratch: zeros at first, then the content of an earlier
                          head, which may have had another size */
} ag_eviction_inputs;

/* One KV head of select_layer(). */
typedef struct ag_eviction_head {
    ag_eviction_view view; /* the heads of a call share `work` and `values` */
    uint32_t head;         /* index of the head in its layer */
    uint32_t n_keep;       /* slots to retain */
    uint32_t *keep;        /* [view.n_slots] written: n_keep slots, ascending */
} ag_eviction_head;

/* A policy. Every function gets `user`; the policy's own parameters are in p->policy_params. */
typedef struct ag_eviction_policy {
    const char *name;
    ag_importance importance;
    uint32_t prefill_block; /* maximum tokens of a prefill chunk once the budget is used; 0: any */
    bool whole_prefill;     /* prefers one eviction after a prompt to one after each chunk */
    void *user;             /* borrowed; the policy's own */
    /* Checks the parameters and fills *err, which is not NULL. Optional; NULL: all are valid. */
    ag_status (*check)(void *user, const ag_eviction_params *p, ag_error *err);
    /* Returns the budget in tokens if the caller sets none. Optional; NULL: 1024. */
    uint32_t (*default_budget)(void *user, const ag_eviction_params *p);
    /* Writes the slots to retain to keep[0..n_keep), ascending; keep has space for n_slots. NULL
     * without select_layer(): the policy never evicts. */
    void (*select)(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                   uint32_t n_keep, uint32_t *keep);
    /* Converts attention sums of one KV head to importance, in place. The sums come from a
     * prefill's queries, which are the last n_window slots. values [n_slots] is scratch. Optional;
     * NULL: the sums are the importance. */
    void (*normalise)(void *user, const ag_eviction_params *p, float *importance, uint32_t n_slots,
                      uint32_t n_window, float *values);
    /* Writes in->importance. AG_IMPORTANCE_KEYS and _CHUNK require it or from_keys_layer(); else
     * NULL. Several threads may call it at once for different heads. */
    void (*from_keys)(void *user, const ag_eviction_params *p, const ag_eviction_inputs *in);
    bool unrotated, with_values; /* inputs of from_keys() */
    /* Returns the scratch floats of from_keys() for heads of `dim` values. Optional; NULL: 0. */
    size_t (*work_floats)(void *user, size_t dim);
    /* Finishes the importance of all heads of a layer after from_keys(). n_slots, removed,
     * importance and more of each head are valid. Optional; NULL: from_keys() is final. */
    void (*compare)(void *user, const ag_eviction_params *p, const ag_eviction_inputs *heads,
                    size_t n_heads);
    /* Returns how many slots to retain, at most n_keep, for a policy that evicts slots in groups.
     * Must return at least n_protected, and n_protected + n_recent if n_keep allows it. Optional;
     * NULL: n_keep. */
    uint32_t (*count)(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                      uint32_t n_keep);
    /* from_keys() computes the scores of KeyDiff: a device that holds the keys may compute them in
     * its place. A copy of the policy keydiff with another from_keys() must clear it. */
    bool device_scores;
    /* Replaces from_keys() and compare(): writes the importance of all heads of a layer in one
     * call. Every head has its own arrays, so the scratch memory grows with the number of heads.
     * The thread that uses the session calls it. A status other than AG_OK, with *err filled, fails
     * the eviction, which stays pending: see ag_session_step(). err is not NULL. Optional; NULL:
     * from_keys(). */
    ag_status (*from_keys_layer)(void *user, const ag_eviction_params *p, uint32_t layer,
                                 const ag_eviction_inputs *heads, size_t n_heads, ag_error *err);
    /* Replaces select(): selects the slots of the heads of a layer in one call, before the layer
     * changes. Heads from which the policy selects nothing are omitted. Called and fails as
     * from_keys_layer() does. Optional; NULL: select(). */
    ag_status (*select_layer)(void *user, const ag_eviction_params *p, uint32_t layer,
                              const ag_eviction_head *heads, size_t n_heads, ag_error *err);
} ag_eviction_policy;

/* Returns the policy of that name, NULL if there is none. */
AG_API const ag_eviction_policy *ag_eviction_policy_find(const char *name);
/* Returns the i-th policy, NULL past the end; the first is "none". */
AG_API const ag_eviction_policy *ag_eviction_policy_at(size_t i);

/* When a prompt is evicted. */
typedef enum ag_kv_prefill {
    AG_KV_PREFILL_AUTO,    /* WHOLE if the policy prefers it and the prompt fits, else BOUNDED */
    AG_KV_PREFILL_BOUNDED, /* to the budget after every chunk */
    AG_KV_PREFILL_WHOLE,   /* once, at the end; the prompt must fit the cache */
} ag_kv_prefill;

/* Division of a layer's retained slots among its heads. Layers whose window is shorter than the
 * trained length always use EVEN. */
typedef enum ag_head_budget {
    AG_HEAD_BUDGET_EVEN,     /* every head retains the same number */
    AG_HEAD_BUDGET_ADAPTIVE, /* one fifth evenly, the remaining slots by the layer's best scores;
                                requires a policy with importance. A policy with
                                AG_IMPORTANCE_NEWEST then ranks each head by its own attention.
                                Source: AdaKV, arXiv:2407.11550 */
    AG_HEAD_BUDGET_SHARES,   /* one fifth evenly, the remaining slots by head_shares; any policy */
    AG_HEAD_BUDGET_VALUES,   /* ADAPTIVE, with the attention of a slot (WINDOW, TOTAL, NEWEST)
                                replaced by the change of the head's output without the slot; the
                                policy's selection uses it too */
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

/* State of the system's memory at one moment. */
typedef struct ag_memory_signals {
    bool has_available, has_group, has_stalls; /* which of the next members are valid */
    uint64_t available;                        /* bytes: MemAvailable */
    uint64_t group_used, group_limit;          /* bytes: this process's control group */
    double stalled_some, stalled_full;         /* share of the last 2 s, 0 to 1: PSI */
    ag_pressure hint;                          /* ag_session_memory_hint() */
} ag_memory_signals;

/* Parameters for watching the system's memory while tokens are consumed. */
typedef struct ag_memory_watch {
    uint64_t threshold_bytes; /* pressure starts below this much available memory (256 MB); 0: the
                                 session does not watch memory */
    float target_ratio;       /* share of the cache retained under SOFT pressure; 0.75; HARD and
                                 CRITICAL retain two thirds and one third of it */
    bool soft_waits;          /* SOFT pressure evicts nothing: the caller checks
                                 ag_session_memory_pressure() and frees memory itself, with
                                 ag_session_compress() for example */
    const char *system_root;  /* directory that contains proc and sys; NULL: "/"; borrowed */
    /* Sources of signals and time. Optional; NULL: the system's files, a monotonic clock. */
    void (*read)(void *user, uint64_t now_ms, ag_memory_signals *out);
    uint64_t (*clock_ms)(void *user);
    void *user;
} ag_memory_watch;

typedef enum ag_eviction_reason {
    AG_EVICTION_BUDGET,  /* the cache exceeded its budget */
    AG_EVICTION_TRAINED, /* slots farther from the next token than the model was trained for */
    AG_EVICTION_MEMORY,  /* memory pressure */
} ag_eviction_reason;
AG_API const char *ag_eviction_reason_name(ag_eviction_reason r); /* "budget" ... */

/* One eviction, over all layers and heads. */
typedef struct ag_eviction {
    ag_eviction_reason reason;
    ag_pressure level;         /* NORMAL unless the reason is MEMORY */
    const char *policy;        /* name of the policy */
    uint32_t position;         /* logical position of the next token */
    uint32_t n_before, n_kept; /* tokens of the fullest head; the mean over heads for a head budget
                                  other than EVEN */
    size_t bytes_returned;     /* to the system */
    double seconds;            /* duration */
} ag_eviction;
typedef void (*ag_eviction_fn)(void *user, const ag_eviction *e);

/* Sums over several evictions. */
typedef struct ag_eviction_stats {
    uint64_t n_evictions, n_tokens; /* tokens evicted from the fullest head */
    uint64_t bytes_returned;
    double seconds, longest_s;
    ag_eviction last; /* all 0 before the first eviction */
} ag_eviction_stats;

/* Parameters of the policy compactor; zeros are the defaults. */
typedef struct ag_compactor_params {
    const float *sketch;  /* [head_dim, min(48, head_dim)] random projection; NULL: its own */
    float query_scale;    /* factor of q . k inside chunks; 0: the model's */
    uint64_t reserved[4]; /* must be 0 */
} ag_compactor_params;

/* Parameters of spilling: evicted slots are written to a file and reloaded when queries attend to
 * them. Protected and recent tokens and layers with a window are not spilled. */
typedef struct ag_spill_params {
    /* A directory, for an unnamed file in it, or a file that does not exist yet (mode 0600). The
     * file is removed with the session. Forks share their session's file. */
    const char *path;
    uint64_t max_bytes; /* limit of the file; the oldest slots are dropped; 0: no limit */
    uint32_t block;     /* slots of a KV head that are moved together, at most 128; 0: 16 */
    bool exact;         /* store rows as in the cache; else keys as Q8_0 and values as Q4_0 if that
                           is smaller */
    uint64_t reserved[4]; /* must be 0 */
} ag_spill_params;

/* Statistics of spilling, in slots of single KV heads, since the session was created or reset. If
 * the file cannot be created, written or read, or is damaged, its slots are lost; the session
 * continues without them. */
typedef struct ag_spill_stats {
    uint64_t n_spilled, n_reloaded;
    uint64_t n_dropped;  /* removed from the file for max_bytes */
    uint64_t n_failed;   /* lost because the file could not be written or read */
    uint64_t file_bytes; /* in use, of the session and its forks */
    const char
        *trouble; /* the first error of the file; NULL: no error; borrowed from the session */
} ag_spill_stats;

/* Parameters of eviction. The comments state the defaults. */
struct ag_eviction_params {
    const ag_eviction_policy
        *policy;               /* NULL: no policy; with a memory watch, keydiff under pressure */
    const void *policy_params; /* the policy's own parameters, borrowed; compactor:
                                  ag_compactor_params or NULL; the library's other policies: NULL */
    /* Limits of the budget. The smallest one that is not 0 applies; if all are 0, the policy's
     * default. The budget is at most max_seq_len - 1 tokens. */
    uint32_t budget_tokens;
    size_t budget_bytes;        /* bytes of the whole cache, in blocks of 128 tokens */
    float budget_ratio;         /* share of max_seq_len */
    uint32_t protected_prefix;  /* first tokens that are never evicted; 4 */
    uint32_t recent;            /* newest tokens that are retained; 32; h2o: half of the budget or
                                   more */
    uint32_t slack;             /* tokens over the budget before decoding evicts; 64 */
    uint32_t window;            /* tokens of sliding; 1024 */
    ag_kv_prefill prefill;      /* AUTO */
    uint32_t snapkv_window;     /* last queries of a prefill that snapkv scores with; 32 */
    uint32_t snapkv_kernel;     /* slots pooled, an odd number; 5 */
    ag_pooling snapkv_pool;     /* AVERAGE */
    ag_head_budget head_budget; /* EVEN */
    /* AG_HEAD_BUDGET_SHARES: [n_head_shares] weights of all KV heads of the layers with a cache, in
     * order, at least 0; compared within a layer. Borrowed. ag_session_head_maxima() measures such
     * weights. */
    const float *head_shares;
    size_t n_head_shares;
    ag_memory_watch memory;
    ag_eviction_fn on_eviction; /* called during the call that evicted; may be NULL */
    void *on_eviction_user;
    /* NULL: evicted slots are lost. A session copies it; requests of an ag_serving borrow it as
     * long as the ag_serving exists. Fails with AG_UNSUPPORTED for a cache in device memory. */
    const ag_spill_params *spill;
    uint64_t reserved[4]; /* must be 0 */
};
AG_API ag_eviction_params ag_eviction_defaults(void);

#ifdef __cplusplus
}
#endif
#endif
