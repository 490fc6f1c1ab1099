/* SPDX-License-Identifier: Apache-2.0 */
/* Context of one render: its memory, limits, position and error. A function that returns a value
 * returns AG_JFAIL, NULL or false after it has recorded an error here.
 *
 * Memory: a region is the memory of a printing statement, a condition, a loop iteration or a macro
 * call. Its end releases everything allocated in it, unless an older object refers to it. Code that
 * stores such a reference must call ag_jstored(). */
#ifndef AG_JINJA_CONTEXT_H
#define AG_JINJA_CONTEXT_H

#include "jinja/value/value.h"

typedef struct ag_jstring_cache ag_jstring_cache;

/* Reference from a namespace to a string: its entry number `entry`. */
typedef struct ag_jstore {
    ag_jdict *dict;
    size_t entry;
} ag_jstore;
enum { AG_JMAX_STORES = 16 };

struct ag_jctx {
    ag_jinja_memory memory;
    ag_jinja_arena arena;     /* released at the end of each region */
    ag_jinja_arena permanent; /* released at the end of the render */
    ag_jbuf *bufs;            /* newest first */
    uint64_t n_regions;       /* begun so far; the newest region has this number */
    uint64_t oldest_store; /* oldest region that refers to a newer one, since the innermost began;
                              see ag_jstored() */
    ag_jstore stores[AG_JMAX_STORES];
    size_t n_stores, first_store; /* index of the innermost region's first store */
    ag_jstring_cache *string_cache;
    const ag_jinja *t;
    const ag_jinja_input *in;
    ag_jv *root;        /* top-level variables by number of their name; AG_JFAIL: not set */
    ag_jscope *scope;   /* innermost; NULL: top level */
    ag_jbuf *out;       /* destination of printing statements */
    ag_jv piped;        /* text of the block that filters are applied to */
    uint64_t steps;     /* remaining */
    uint64_t check_at;  /* remaining steps at the next call of the interrupt function */
    bool over_steps;    /* the step limit ended the render */
    uint32_t depth;     /* remaining */
    const ag_jnode *at; /* node that is evaluated, for messages */
    const ag_jnode *statement;
    ag_status status;
    ag_error *err;
};

/* Initialises a context. All limits of `in` must be set; `in` and `err` are borrowed. */
void ag_jctx_init(ag_jctx *c, const ag_jinja *t, const ag_jinja_input *in, ag_error *err);
void ag_jctx_free(ag_jctx *c);

/* Records an error with template name, line and statement, unless there is one. Returns AG_JFAIL.
 * ag_jfail() uses AG_INVALID. */
ag_jv ag_jfail(ag_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
ag_jv ag_jfail_as(ag_jctx *c, ag_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Allocate from the innermost region. Return NULL with the error recorded. */
void *ag_jalloc(ag_jctx *c, size_t bytes);
void *ag_jalloc_zeroed(ag_jctx *c, size_t bytes);
/* Does ag_jinja_grow() in the innermost region. Returns false with the error recorded. */
bool ag_jgrow(ag_jctx *c, void *array, size_t n, size_t *cap, size_t size);
/* Allocates for the entire render. Returns NULL with the error recorded. */
void *ag_jalloc_permanent(ag_jctx *c, size_t bytes);
/* Records that `bytes` could not be allocated: AG_LIMIT or AG_NOMEM. Returns NULL. */
void *ag_jfail_memory(ag_jctx *c, size_t bytes);

typedef struct ag_jregion {
    ag_jinja_mark mark;
    ag_jbuf *bufs;
    uint64_t number, outer_store;
    size_t outer_first;
} ag_jregion;

void ag_jregion_begin(ag_jctx *c, ag_jregion *r);
void ag_jregion_end(ag_jctx *c, const ag_jregion *r);
/* Ends the region but keeps its memory, as if it had been allocated outside. */
void ag_jregion_keep(ag_jctx *c, const ag_jregion *r);
/* Records that an object of region number `region` refers to memory allocated now. Open regions
 * newer than the object are then not released. */
static inline void ag_jstored(ag_jctx *c, uint64_t region) {
    if (region < c->oldest_store) c->oldest_store = region;
}

/* Records the same for a string, the value of entry `entry` of namespace d. Regions can be released
 * nevertheless: the string is moved out. */
void ag_jstored_string(ag_jctx *c, ag_jdict *d, size_t entry);
/* Frees the buffers created after `until`; NULL: all. */
void ag_jbufs_free(ag_jctx *c, const ag_jbuf *until);

/* Counts steps against the limit and calls the thread's interrupt function every 4,096 steps.
 * Returns false with the error recorded if the render must end. */
bool ag_jwork_checked(ag_jctx *c, size_t steps);
static inline bool ag_jwork(ag_jctx *c, size_t steps) {
    if (steps <= c->steps && c->steps - steps >= c->check_at) {
        c->steps -= steps;
        return true;
    }
    return ag_jwork_checked(c, steps);
}
static inline bool ag_jwork_bytes(ag_jctx *c, size_t bytes) { return ag_jwork(c, bytes / 32); }
/* Counts one step for every eighth call; for loops over characters. *n counts the calls. */
static inline bool ag_jwork_eighth(ag_jctx *c, size_t *n) {
    return ++*n % 8 ? true : ag_jwork(c, 1);
}
/* Counts the steps of a text search, which can cost several times as much as a copy. */
static inline bool ag_jwork_search(ag_jctx *c, size_t bytes) { return ag_jwork(c, bytes / 8); }

/* Bounds recursion: `if (!ag_jenter(c)) fail; ...; ag_jleave(c);` */
bool ag_jenter(ag_jctx *c);
static inline void ag_jleave(ag_jctx *c) { c->depth++; }

#endif
