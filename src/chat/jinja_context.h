/* SPDX-License-Identifier: Apache-2.0 */
/* One render: its memory, its limits, where it is and what went wrong. Functions that make a value
 * return AG_JFAIL (or NULL, or false) once the error is recorded here. */
#ifndef AG_CHAT_JINJA_CONTEXT_H
#define AG_CHAT_JINJA_CONTEXT_H

#include "chat/jinja_value.h"

struct ag_jctx {
    ag_jinja_arena arena;
    const ag_jinja *t;
    const ag_jinja_input *in;
    ag_jv *root;        /* by the name's number: variables at the top level; AG_JFAIL: none */
    ag_jscope *scope;   /* the innermost; NULL: the top level */
    ag_jbuf *out;       /* where statements write */
    ag_jv piped;        /* the text of a block that filters are applied to */
    uint64_t steps;     /* left */
    uint32_t depth;     /* left */
    const ag_jnode *at; /* being evaluated, for messages */
    const ag_jnode *statement;
    ag_status status;
    ag_error *err;
};

/* Records an error with its place; returns AG_JFAIL. */
ag_jv ag_jfail(ag_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
ag_jv ag_jfail_as(ag_jctx *c, ag_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* From the arena; NULL with the error recorded. */
void *ag_jtake(ag_jctx *c, size_t bytes);
void *ag_jtake_zeroed(ag_jctx *c, size_t bytes);
void *ag_jgrow(ag_jctx *c, void *p, size_t old, size_t bytes);

/* Counts work against the limit. */
bool ag_jwork(ag_jctx *c, size_t steps);
static inline bool ag_jwork_bytes(ag_jctx *c, size_t bytes) { return ag_jwork(c, bytes / 32); }
/* Looking for one text in another can cost a few times as much as copying it. */
static inline bool ag_jwork_search(ag_jctx *c, size_t bytes) { return ag_jwork(c, bytes / 8); }

/* Around whatever may call itself: `if (!ag_jenter(c)) fail; ...; ag_jleave(c);` */
bool ag_jenter(ag_jctx *c);
static inline void ag_jleave(ag_jctx *c) { c->depth++; }

#endif
