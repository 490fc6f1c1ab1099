/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix store: cached sessions that no request uses, for requests whose prompts begin with the
 * same tokens. The holder of the engine lock owns it. */
#ifndef AG_SERVING_PREFIX_STORE_H
#define AG_SERVING_PREFIX_STORE_H

#include "serving/model.h"

typedef enum ag_prefix_state {
    AG_PREFIX_RESIDENT,
    AG_PREFIX_QUEUED,  /* will be written to a file; may become resident again */
    AG_PREFIX_WRITING, /* is being written and is dropped afterwards; may be forked until then */
} ag_prefix_state;

/* A cached session. */
typedef struct ag_prefix_entry {
    struct ag_prefix_entry *next;
    uint64_t id;
    ag_served_model *model;
    char *scope; /* owned; isolates reuse, as vLLM's cache_salt; NULL: none */
    ag_session *session;
    ag_session_params params;
    ag_ids ids;                   /* consumed tokens */
    ag_resident_session resident; /* its public description, without scope */
    bool has_evicted;             /* tokens have been evicted: only its end can be continued */
    bool pinned;                  /* about to be used: must not be dropped */
    bool is_compressed;           /* by a replay, or a replay is impossible */
    double retry_at; /* no replay before this time, in ag_now_s(): there was no memory for one */
    ag_prefix_state state;
    double used_at; /* in ag_now_s() */
} ag_prefix_entry;

typedef struct ag_prefix_store {
    ag_prefix_entry *entries;
    size_t n_entries;
    size_t n_writing; /* entries in state QUEUED or WRITING */
} ag_prefix_store;

/* A session that a request can continue. */
typedef struct ag_prefix {
    ag_prefix_entry *entry; /* NULL: the session of a running request, or none */
    ag_session *session;    /* borrowed; NULL: none */
    size_t n;               /* tokens of the prompt that need not be read */
    bool is_full_match;     /* n is all that the session has consumed */
    bool has_evicted;
} ag_prefix;

/* Compares two texts that may be NULL. */
bool ag_same_text(const char *a, const char *b);
/* Returns whether sessions of these parameters can replace each other. */
bool ag_prefix_same_params(const ag_session_params *a, const ag_session_params *b);
/* Returns whether the session's policy sums attention weights: then truncation does not restore the
 * sums. */
bool ag_prefix_accumulates_scores(const ag_session_params *p);
/* Returns the public description of a session, without scope and as if just used. */
ag_resident_session ag_resident_session_of(ag_session *session, uint64_t id,
                                           const ag_served_model *m,
                                           const ag_session_params *params);

/* Adds a session with the id, model, scope, parameters and has_evicted of `like`. Takes ownership
 * of session and *ids. Drops entries that the new one covers. Returns false, without a new entry,
 * if there is no memory or another entry covers it. */
bool ag_prefix_store_add(ag_prefix_store *store, const ag_prefix_entry *like, ag_session *session,
                         ag_ids *ids);
/* Destroy an entry, or all, at once and without a file. */
void ag_prefix_store_drop(ag_prefix_store *store, ag_prefix_entry *k);
void ag_prefix_store_drop_all(ag_prefix_store *store);
/* Sets the state of an entry and keeps n_writing up to date. */
void ag_prefix_store_set_state(ag_prefix_store *store, ag_prefix_entry *k, ag_prefix_state state);
/* Returns whether an entry is of this model. */
bool ag_prefix_store_has(const ag_prefix_store *store, const ag_served_model *m);
/* Returns the unpinned entry in that state that is cheapest to lose: longest idle per token to read
 * again. NULL: none. */
ag_prefix_entry *ag_prefix_store_victim(const ag_prefix_store *store, ag_prefix_state state);
/* Returns the bytes of entries in state QUEUED or WRITING. */
uint64_t ag_prefix_store_writing_bytes(const ag_prefix_store *store);

/* Returns the bytes of the prefix that its user need not allocate. */
uint64_t ag_prefix_shared_bytes(const ag_prefix *from);
/* Gives a session that has consumed the prefix: the entry's own, or a fork. The caller owns it. */
ag_status ag_prefix_acquire(ag_prefix_store *store, ag_prefix *from, ag_session **out,
                            ag_error *err);

#endif
