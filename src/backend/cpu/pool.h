/* SPDX-License-Identifier: Apache-2.0 */
/* Thread pool: persistent threads that spin briefly, then sleep. */
#ifndef AG_BACKEND_CPU_POOL_H
#define AG_BACKEND_CPU_POOL_H

#include <antigravity/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ag_pool ag_pool;

/* Creates a pool. n_threads includes the caller's thread, which works too. 0 selects the usable
 * cores; of big and little cores the big ones, to which the workers are then bound. */
ag_status ag_pool_create(uint32_t n_threads, ag_pool **out, ag_error *err);
void ag_pool_destroy(ag_pool *pool);
uint32_t ag_pool_threads(const ag_pool *pool);

/* Calls work(ctx, begin, end, thread) for ranges that cover [0, n) and returns when all are done.
 * The length of each range but the last is a multiple of `grain`. thread < ag_pool_threads()
 * selects scratch memory. Not reentrant; allocates nothing; one caller at a time. */
typedef void (*ag_pool_fn)(void *ctx, size_t begin, size_t end, uint32_t thread);
void ag_pool_run(ag_pool *pool, size_t n, size_t grain, ag_pool_fn work, void *ctx);

#endif
