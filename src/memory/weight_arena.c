/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/weight_arena.h"

#include "core/alloc.h"
#include "platform/map.h"

#include <stdatomic.h>

/* Weights from OWN_BYTES on have a mapping of their own. The first arena of a memory has
 * FIRST_BYTES and small pages: a small model would fill only a part of its last huge page. */
enum { ARENA_BYTES = 128 << 20, OWN_BYTES = 32 << 20, FIRST_BYTES = 8 << 20 };

struct ag_weight_arena {
    unsigned char *data;
    size_t bytes, used;
    atomic_size_t refs; /* weights, and the list whose current arena this is */
};

static void release(ag_weight_arena *arena) {
    if (!arena || atomic_fetch_sub_explicit(&arena->refs, 1, memory_order_acq_rel) != 1) return;
    ag_unmap(arena->data, arena->bytes);
    ag_free(arena);
}

void ag_weight_arenas_init(ag_weight_arenas *all) {
    *all = (ag_weight_arenas){.current = NULL};
    ag_mutex_init(&all->mutex);
}

void ag_weight_arenas_finish(ag_weight_arenas *all) {
    release(all->current);
    ag_mutex_destroy(&all->mutex);
}

static ag_weight_arena *create(size_t bytes) {
    ag_weight_arena *arena = ag_malloc(sizeof *arena);
    unsigned char *data = bytes == FIRST_BYTES ? ag_map_small(bytes) : ag_map_huge(bytes);
    if (!arena || !data) {
        if (data) ag_unmap(data, bytes);
        ag_free(arena);
        return NULL;
    }
    *arena = (ag_weight_arena){.data = data, .bytes = bytes};
    atomic_init(&arena->refs, 1);
    return arena;
}

/* Ensures that `current` has `bytes` free, a multiple of the page size. Returns false without
 * memory or address space. */
static bool ensure_space(ag_weight_arenas *all, size_t bytes) {
    if (all->current && all->current->bytes - all->current->used >= bytes) return true;
    const bool is_first = !all->has_arena && bytes <= FIRST_BYTES;
    ag_weight_arena *next = create(is_first ? FIRST_BYTES : ARENA_BYTES);
    if (!next) return false;
    release(all->current);
    all->current = next;
    all->has_arena = true;
    return true;
}

unsigned char *ag_weight_alloc(ag_weight_arenas *all, size_t bytes, ag_weight_arena **arena) {
    *arena = NULL;
    if (bytes >= OWN_BYTES) return ag_map_huge(bytes);
    const size_t page = ag_page_size(), rounded = (bytes + page - 1) / page * page;
    unsigned char *data = NULL;
    ag_mutex_lock(&all->mutex);
    if (ensure_space(all, rounded)) {
        ag_weight_arena *from = all->current;
        data = from->data + from->used;
        from->used += rounded;
        atomic_fetch_add_explicit(&from->refs, 1, memory_order_relaxed);
        *arena = from;
    }
    ag_mutex_unlock(&all->mutex);
    /* A limit of the address space may leave room for these weights, but not for an arena. */
    return data ? data : ag_map_huge(bytes);
}

void ag_weight_free(ag_weight_arena *arena, unsigned char *data, size_t bytes) {
    (void)ag_pages_discard(data, bytes, 0, bytes);
    release(arena);
}
