/* SPDX-License-Identifier: Apache-2.0 */
#include "core/block_pool_impl.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "platform/map.h"

#include <string.h>

enum {
    WORD = 64,            /* bits */
    FIRST_BLOCKS = 1024,  /* blocks of the first arena; each further one is twice as large */
    MAX_BLOCKS = 1 << 16, /* blocks of an arena */
    LARGE_PAGE = 2 << 20, /* bytes; ag_buffer_promote() may need it */
};

static bool has_bit(const uint64_t *set, uint32_t i) { return set[i / WORD] >> i % WORD & 1; }
static void add_bit(uint64_t *set, uint32_t i) { set[i / WORD] |= (uint64_t)1 << i % WORD; }
static void remove_bit(uint64_t *set, uint32_t i) { set[i / WORD] &= ~((uint64_t)1 << i % WORD); }

/* ---- pools ---- */

ag_status ag_block_pool_of(ag_backend *be, size_t block_bytes, ag_block_pool **out, ag_error *err) {
    for (*out = be->block_pools; *out; *out = (*out)->next) {
        if ((*out)->block_bytes == block_bytes) return AG_OK;
    }
    ag_block_pool *p = ag_calloc(1, sizeof *p);
    if (!p) return AG_FAIL(err, NOMEM, "pool of KV blocks of %zu bytes", block_bytes);
    p->backend = be;
    p->memory = ag_backend_memory(be);
    p->moves = p->memory->ops->commits_at_once;
    p->block_bytes = block_bytes;
    p->page = ag_page_size();
    p->next = be->block_pools;
    be->block_pools = *out = p;
    return AG_OK;
}

static void free_arena(ag_block_arena *a) {
    if (!a) return;
    ag_buffer_release(&a->buffer);
    ag_free(a->holders);
    ag_free(a->free);
    ag_free(a);
}

void ag_block_pools_release(ag_backend *be) {
    while (be->block_pools) {
        ag_block_pool *p = be->block_pools;
        be->block_pools = p->next;
        for (size_t i = 0; i < p->n_arenas; i++) free_arena(p->arenas[i]);
        ag_free(p->arenas);
        ag_free(p);
    }
}

/* ---- arenas ---- */

static ag_block_arena *make_arena(const ag_block_pool *p, uint32_t n, ag_error *err) {
    const size_t words = (n + WORD - 1) / WORD;
    ag_block_arena *a = ag_calloc(1, sizeof *a);
    if (a) a->holders = ag_calloc(n, sizeof *a->holders);
    if (a) a->free = ag_calloc(3 * words, sizeof *a->free);
    if (!a || !a->holders || !a->free) {
        AG_FAIL(err, NOMEM, "tables of %u KV blocks", n);
        free_arena(a);
        return NULL;
    }
    a->n = n;
    a->stale = a->free + words;
    a->full = a->stale + words;
    for (uint32_t i = 0; i < n; i++) add_bit(a->free, i);
    if (ag_memory_alloc(p->memory, n * p->block_bytes, AG_USAGE_KV, &a->buffer, err) == AG_OK) {
        return a;
    }
    free_arena(a);
    return NULL;
}

static uint32_t next_size(const ag_block_pool *p) {
    uint32_t n = FIRST_BLOCKS / 2;
    for (size_t i = 0; i < p->n_arenas; i++) {
        if (p->arenas[i]->n > n) n = p->arenas[i]->n;
    }
    return n < MAX_BLOCKS ? 2 * n : MAX_BLOCKS;
}

static ag_status append_arena(ag_block_pool *p, ag_block_arena *a, ag_error *err) {
    ag_block_arena **arenas = ag_realloc(p->arenas, (p->n_arenas + 1) * sizeof *arenas);
    if (!arenas) {
        free_arena(a);
        return AG_FAIL(err, NOMEM, "list of %zu arenas", p->n_arenas + 1);
    }
    p->arenas = arenas;
    p->arenas[p->n_arenas++] = a;
    p->n_free += a->n;
    return AG_OK;
}

ag_status ag_block_arena_add(ag_block_pool *p, size_t n, ag_error *err) {
    if (n > UINT32_MAX - WORD || n > SIZE_MAX / p->block_bytes)
        return AG_FAIL(err, NOMEM, "buffer of %zu KV blocks", n);
    ag_block_arena *a = make_arena(p, (uint32_t)n, err);
    return a ? append_arena(p, a, err) : AG_NOMEM;
}

void ag_block_arena_remove(ag_block_pool *p, ag_block_arena *a) {
    size_t i = 0;
    while (p->arenas[i] != a) i++;
    p->n_free -= a->n;
    memmove(p->arenas + i, p->arenas + i + 1, (--p->n_arenas - i) * sizeof(ag_block_arena *));
    free_arena(a);
    if (p->n_arenas) return;
    ag_free(p->arenas);
    p->arenas = NULL;
}

/* Adds an arena. If the system refuses its size, tries smaller ones down to min_blocks. */
static ag_status add_mapping(ag_block_pool *p, size_t min_blocks, ag_error *err) {
    uint32_t n = next_size(p);
    ag_block_arena *a = make_arena(p, n, err);
    while (!a && n / 2 >= min_blocks && n > 1) a = make_arena(p, n /= 2, err);
    return a ? append_arena(p, a, err) : AG_NOMEM;
}

ag_status ag_block_pool_reserve(ag_block_pool *p, size_t n, ag_error *err) {
    if (p->moves && p->n_free > n) ag_block_slabs_trim(p, n, false);
    while (p->n_free < n)
        AG_TRY(p->moves ? ag_block_slabs_grow(p, n, err) : add_mapping(p, n - p->n_free, err));
    return AG_OK;
}

static ag_block_arena *arena_of(const ag_block_pool *p, ag_kv_block block) {
    size_t i = 0;
    while (p->arenas[i]->buffer != block.buffer) i++;
    return p->arenas[i];
}

static uint32_t number_of(const ag_block_pool *p, ag_kv_block block) {
    return (uint32_t)(block.offset / p->block_bytes);
}

/* ---- blocks ---- */

ag_kv_block ag_block_pool_take_free(ag_block_pool *p, uint32_t holders) {
    size_t at = 0;
    while (p->arenas[at]->n_live == p->arenas[at]->n || p->arenas[at]->closed) at++;
    ag_block_arena *a = p->arenas[at];
    while (!a->free[a->lowest]) a->lowest++;
    const uint32_t i = a->lowest * WORD + (uint32_t)__builtin_ctzll(a->free[a->lowest]);
    remove_bit(a->free, i);
    remove_bit(a->stale, i);
    a->holders[i] = holders;
    p->n_shared += holders > 1;
    a->n_live++;
    p->n_free--;
    ag_buffer_commit(a->buffer, p->block_bytes);
    return (ag_kv_block){.buffer = a->buffer, .offset = i * p->block_bytes};
}

ag_status ag_block_pool_take(ag_block_pool *p, ag_kv_block *out, ag_error *err) {
    if (!p->n_free) AG_TRY(ag_block_pool_reserve(p, 1, err));
    *out = ag_block_pool_take_free(p, 1);
    return AG_OK;
}

void ag_block_pool_share(ag_block_pool *p, ag_kv_block block) {
    p->n_shared += ++arena_of(p, block)->holders[number_of(p, block)] == 2;
}

bool ag_block_pool_has_shared(const ag_block_pool *p) { return p->n_shared != 0; }

bool ag_block_pool_is_shared(const ag_block_pool *p, ag_kv_block block) {
    return p->n_shared && arena_of(p, block)->holders[number_of(p, block)] > 1;
}

void ag_block_pool_drop(ag_block_pool *p, ag_kv_block block) {
    ag_block_arena *a = arena_of(p, block);
    const uint32_t i = number_of(p, block), word = i / WORD;
    p->n_shared -= a->holders[i] == 2;
    if (--a->holders[i]) return;
    add_bit(a->free, i);
    add_bit(a->stale, i);
    remove_bit(a->full, i);
    a->n_live--;
    p->n_free++;
    if (word < a->lowest) a->lowest = word;
    if (a->stale_first == a->stale_end) a->stale_first = a->stale_end = word;
    if (word < a->stale_first) a->stale_first = word;
    if (word >= a->stale_end) a->stale_end = word + 1;
    ag_buffer_uncommit(a->buffer, p->block_bytes);
}

/* ---- pages ---- */

/* Returns whether all blocks that overlap bytes [begin, end) are free. */
static bool all_free(const ag_block_pool *p, const ag_block_arena *a, size_t begin, size_t end) {
    for (size_t i = begin / p->block_bytes; i < a->n && i * p->block_bytes < end; i++) {
        if (!has_bit(a->free, (uint32_t)i)) return false;
    }
    return true;
}

/* Gives back the pages of blocks [first, end), which are free. A page at an end goes only if all
 * its other blocks are free. */
static void discard_pages(const ag_block_pool *p, const ag_block_arena *a, uint32_t first,
                          uint32_t end) {
    const size_t page = p->page, from = first * p->block_bytes, until = end * p->block_bytes;
    size_t begin = from / page * page, past = (until + page - 1) / page * page;
    if (!all_free(p, a, begin, from)) begin += page;
    if (past > begin && !all_free(p, a, until, past)) past -= page;
    if (past > begin) ag_buffer_discard(a->buffer, begin, past - begin);
}

static void trim_arena(const ag_block_pool *p, ag_block_arena *a) {
    const uint32_t end_block = a->stale_end * WORD < a->n ? a->stale_end * WORD : a->n;
    for (uint32_t i = a->stale_first * WORD, end; i < end_block; i = end + 1) {
        if (!a->stale[i / WORD]) {
            end = i / WORD * WORD + WORD - 1;
            continue;
        }
        for (end = i; end < end_block && has_bit(a->stale, end); end++) remove_bit(a->stale, end);
        if (end > i) discard_pages(p, a, i, end);
    }
    a->stale_first = a->stale_end = 0;
}

/* Removes arenas without used blocks, and gives back free pages of the others. */
static void trim_pages(ag_block_pool *p) {
    for (size_t i = p->n_arenas; i-- > 0;) {
        ag_block_arena *a = p->arenas[i];
        if (!a->n_live) ag_block_arena_remove(p, a);
        else if (a->stale_first < a->stale_end) trim_arena(p, a);
    }
}

void ag_block_pool_trim(ag_block_pool *p) {
    if (p->moves) ag_block_slabs_trim(p, 0, false);
    else trim_pages(p);
}

void ag_block_pool_trim_loosely(ag_block_pool *p) {
    if (p->moves) ag_block_slabs_trim(p, 0, true);
    else trim_pages(p);
}

/* ---- tables ---- */

void ag_block_pool_join(ag_block_pool *p, ag_block_table *t, size_t row) {
    t->before = NULL;
    t->next = p->tables;
    if (t->next) t->next->before = t;
    p->tables = t;
    p->table_capacity += (size_t)t->n_rows * t->per_row;
    if (row > p->row) p->row = row;
}

void ag_block_pool_leave(ag_block_pool *p, ag_block_table *t) {
    if (t->before) t->before->next = t->next;
    else p->tables = t->next;
    if (t->next) t->next->before = t->before;
    p->table_capacity -= (size_t)t->n_rows * t->per_row;
}

/* Promotes the pages around a block once a range of full blocks covers a large page. Looks at
 * blocks up to a large page before and after this one. */
void ag_block_pool_full(ag_block_pool *p, ag_kv_block block) {
    if (p->moves) return;
    ag_block_arena *a = arena_of(p, block);
    const uint32_t i = number_of(p, block);
    if (has_bit(a->full, i)) return;
    add_bit(a->full, i);
    const size_t bytes = p->block_bytes, at = i * bytes;
    uint32_t first = i, end = i + 1;
    while (first && (i - first) * bytes < LARGE_PAGE && has_bit(a->full, first - 1)) first--;
    while (end < a->n && (end - i) * bytes < LARGE_PAGE && has_bit(a->full, end)) end++;
    size_t begin = first * bytes, past = end * bytes;
    if (begin + LARGE_PAGE <= at) begin = at + 1 - LARGE_PAGE;
    if (past >= at + bytes + LARGE_PAGE) past = at + bytes + LARGE_PAGE - 1;
    if (past - begin >= LARGE_PAGE) ag_buffer_promote(a->buffer, begin, begin, past);
}
