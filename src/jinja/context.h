/* SPDX-License-Identifier: Apache-2.0 */
/* One render: its memory, its limits, where it is and what went wrong. Functions that make a value
 * return AG_JFAIL (or NULL, or false) once the error is recorded here.
 *
 * Memory: what is made inside of a region (a statement that prints, a condition, a turn of a loop,
 * a call of a macro) is released at its end, unless something made earlier has come to refer to it.
 * Code that stores such a reference calls ag_jstored(). */
#ifndef AG_JINJA_CONTEXT_H
#define AG_JINJA_CONTEXT_H

#include "jinja/value/value.h"

typedef struct ag_jstring_cache ag_jstring_cache;

/* A string that was set in a namespace. */
typedef struct ag_jstore {
    ag_jdict *dict;
    size_t entry;
} ag_jstore;
enum { AG_JMAX_STORES = 16 };

struct ag_jctx {
    ag_jinja_memory memory;
    ag_jinja_arena arena;     /* memory of regions */
    ag_jinja_arena permanent; /* memory that is released at the end */
    ag_jbuf *bufs;            /* the newest first */
    uint64_t n_regions;       /* begun so far: the number of the newest */
    uint64_t oldest_store;    /* since the innermost region began: see ag_jstored() */
    ag_jstore stores[AG_JMAX_STORES];
    size_t n_stores, first_store; /* the first of the innermost region */
    ag_jstring_cache *string_cache;
    const ag_jinja *t;
    const ag_jinja_input *in;
    ag_jv *root;        /* by the name's number: variables at the top level; AG_JFAIL: none */
    ag_jscope *scope;   /* the innermost; NULL: the top level */
    ag_jbuf *out;       /* where statements write */
    ag_jv piped;        /* the text of a block that filters are applied to */
    uint64_t steps;     /* left */
    uint64_t check_at;  /* the steps left at the next call of the interrupt function */
    bool over_steps;    /* the limit of steps ended it */
    uint32_t depth;     /* left */
    const ag_jnode *at; /* being evaluated, for messages */
    const ag_jnode *statement;
    ag_status status;
    ag_error *err;
};

/* The limits of in must be set. `in` and `err` are borrowed. */
void ag_jctx_init(ag_jctx *c, const ag_jinja *t, const ag_jinja_input *in, ag_error *err);
void ag_jctx_free(ag_jctx *c);

/* Records an error with its place; returns AG_JFAIL. */
ag_jv ag_jfail(ag_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
ag_jv ag_jfail_as(ag_jctx *c, ag_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* From the arena; NULL with the error recorded. */
void *ag_jalloc(ag_jctx *c, size_t bytes);
void *ag_jalloc_zeroed(ag_jctx *c, size_t bytes);
void *ag_jrealloc(ag_jctx *c, void *p, size_t old, size_t bytes);
/* For the whole render. */
void *ag_jalloc_permanent(ag_jctx *c, size_t bytes);
/* Records why `bytes` could not be had; returns NULL. */
void *ag_jfail_memory(ag_jctx *c, size_t bytes);

typedef struct ag_jregion {
    ag_jinja_mark mark;
    ag_jbuf *bufs;
    uint64_t number, outer_store;
    size_t outer_first;
} ag_jregion;

void ag_jregion_begin(ag_jctx *c, ag_jregion *r);
void ag_jregion_end(ag_jctx *c, const ag_jregion *r);
/* Ends it, but what was made inside stays as if it had been made outside. */
void ag_jregion_keep(ag_jctx *c, const ag_jregion *r);
/* An object that was made in region number `born` refers to memory allocated now: regions that are
 * newer than the object and still open are not released. */
static inline void ag_jstored(ag_jctx *c, uint64_t region) {
    if (region < c->oldest_store) c->oldest_store = region;
}

/* The same for a string that is the value of entry number `entry` of a namespace: regions can be
 * released all the same. */
void ag_jstored_string(ag_jctx *c, ag_jdict *d, size_t entry);
/* Frees the buffers that were made after `until`. */
void ag_jbufs_free(ag_jctx *c, const ag_jbuf *until);

/* Counts work against the limit, and calls the thread's interrupt function every 4,096 steps. */
bool ag_jwork_checked(ag_jctx *c, size_t steps);
static inline bool ag_jwork(ag_jctx *c, size_t steps) {
    if (steps <= c->steps && c->steps - steps >= c->check_at) {
        c->steps -= steps;
        return true;
    }
    return ag_jwork_checked(c, steps);
}
static inline bool ag_jwork_bytes(ag_jctx *c, size_t bytes) { return ag_jwork(c, bytes / 32); }
/* In a loop over the characters of a text: once for each eighth of those that need work. */
static inline bool ag_jwork_eighth(ag_jctx *c, size_t *n) {
    return ++*n % 8 ? true : ag_jwork(c, 1);
}
/* Looking for one text in another can cost a few times as much as copying it. */
static inline bool ag_jwork_search(ag_jctx *c, size_t bytes) { return ag_jwork(c, bytes / 8); }

/* Around whatever may call itself: `if (!ag_jenter(c)) fail; ...; ag_jleave(c);` */
bool ag_jenter(ag_jctx *c);
static inline void ag_jleave(ag_jctx *c) { c->depth++; }

#endif
