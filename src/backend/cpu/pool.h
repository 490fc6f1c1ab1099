/* SPDX-License-Identifier: Apache-2.0 */
/* A persistent pool of threads: spin briefly, then sleep. */
#ifndef AG_BACKEND_CPU_POOL_H
#define AG_BACKEND_CPU_POOL_H

#include <antigravity/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ag_pool ag_pool;

/* n_threads counts the caller's thread, which works too; 0: usable cores, of
 * big and little ones the big ones, where the workers then stay. */
ag_status ag_pool_create(uint32_t n_threads, ag_pool **out, ag_error *err);
void ag_pool_destroy(ag_pool *pool);
uint32_t ag_pool_threads(const ag_pool *pool);

/* Calls work(ctx, begin, end, thread) for ranges that cover [0, n), each a multiple of `grain` long
 * (but the last); returns when all are done. thread < ag_pool_threads, for scratch of its own. Not
 * reentrant; allocates nothing; one caller at a time. */
typedef void (*ag_pool_fn)(void *ctx, size_t begin, size_t end, uint32_t thread);
void ag_pool_run(ag_pool *pool, size_t n, size_t grain, ag_pool_fn work, void *ctx);

/* Cores this process may use: affinity and cgroup cpu quota considered, at least 1. */
uint32_t ag_usable_cpus(void);

#endif
