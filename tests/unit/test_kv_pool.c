/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that share the pool of their backend: their contents and their memory. On the host, in
 * memory that the host does not see, and on a device. */
#include "cache/kv_cache.h"

#include <antigravity/process.h>

#include "core/backend_ops.h"
#include "core/block_pool_impl.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "support/named_backend.h"
#include "support/plain_backend.h"
#include "support/resident.h"
#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ag_backend *backend;
static ag_memory *memory;
static const char *device; /* the backend; NULL: the host */

static uint32_t random_state = 11;

static uint32_t below(uint32_t n) {
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % n;
}

static ag_kv_cache *make(const ag_kv_params *p) {
    ag_kv_cache *c;
    ag_error err;
    if (ag_kv_cache_create(backend, p, &c, &err) != AG_OK) fail_msg("%s", err.msg);
    return c;
}

/* Values of a key identify `mark` and location; values of a value are their negatives. */
static float mark_of(uint32_t mark, uint32_t position, uint32_t head) {
    return (float)(mark % 512 * 16384 + position * 8 + head % 8);
}

static void append(ag_kv_cache *c, uint32_t first, uint32_t n, uint32_t mark) {
    const ag_kv_params *p = ag_kv_cache_params(c);
    const size_t heads = p->n_kv_heads, d = p->head_dim;
    ag_buffer *owners[2];
    ag_tensor rows[2];
    uint32_t *positions = malloc(n * sizeof *positions);
    float *values = malloc(n * heads * d * sizeof *values);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ag_tensor_alloc(&rows[i], &owners[i], memory, AG_USAGE_SCRATCH, AG_F32,
                                         ag_shape_3d(n, heads, d), NULL),
                         AG_OK);
        for (size_t r = 0; r < n * heads; r++) {
            const float v = mark_of(mark, first + (uint32_t)(r / heads), (uint32_t)(r % heads));
            for (size_t k = 0; k < d; k++) values[r * d + k] = i ? -v : v;
        }
        assert_int_equal(
            ag_buffer_upload(owners[i], 0, values, n * heads * d * sizeof *values, NULL), AG_OK);
    }
    for (uint32_t t = 0; t < n; t++) positions[t] = first + t;
    ag_error err;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        if (ag_kv_cache_update(c, l, &rows[0], &rows[1], positions, &err) != AG_OK)
            fail_msg("%s", err.msg);
    }
    for (int i = 0; i < 2; i++) ag_buffer_release(&owners[i]);
    free(values);
    free(positions);
}

/* Blocks of all caches, each once, and the buffers that hold them. */
typedef struct survey {
    ag_kv_block blocks[4096];
    ag_buffer *buffers[AG_KV_BUFFERS];
    size_t n_blocks, n_buffers;
} survey;

static void see_block(survey *s, ag_kv_block block) {
    size_t i = 0;
    for (size_t k = 0; k < s->n_blocks; k++) {
        if (s->blocks[k].buffer == block.buffer && s->blocks[k].offset == block.offset) return;
    }
    assert_true(s->n_blocks < sizeof s->blocks / sizeof *s->blocks);
    s->blocks[s->n_blocks++] = block;
    while (i < s->n_buffers && s->buffers[i] != block.buffer) i++;
    assert_true(i < sizeof s->buffers / sizeof *s->buffers);
    if (i == s->n_buffers) s->buffers[s->n_buffers++] = block.buffer;
}

static void see(survey *s, const ag_kv_cache *c) {
    for (uint32_t l = 0; l < ag_kv_cache_params(c)->n_layers; l++) {
        ag_kv_view kv;
        ag_kv_cache_get_view(c, l, &kv);
        for (uint32_t h = 0; h < kv.n_kv_heads; h++) {
            for (uint32_t b = 0; b < kv.blocks_per_head; b++) {
                const ag_kv_block *block = ag_kv_view_block(&kv, h, b);
                assert_int_equal(block->buffer != NULL, b < ag_kv_blocks_for(kv.n_slots[h]));
                if (block->buffer) see_block(s, *block);
            }
        }
    }
}

static size_t resident_in(const survey *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_buffers; i++) n += resident_bytes(s->buffers[i]);
    return n;
}

static ag_block_pool *pool_of(const ag_kv_cache *c) {
    const ag_kv_params *p = ag_kv_cache_params(c);
    ag_block_pool *pool;
    const size_t bytes = ag_kv_sections_of(p->k_type, p->v_type, p->head_dim).bytes;
    assert_int_equal(ag_block_pool_of(backend, bytes, &pool, NULL), AG_OK);
    return pool;
}

static size_t block_bytes_of(const ag_kv_cache *c) {
    const ag_kv_params *p = ag_kv_cache_params(c);
    return ag_kv_sections_of(p->k_type, p->v_type, p->head_dim).bytes;
}

/* ---- eviction ---- */

enum { LAYERS = 3, HEADS = 4, TOKENS = 2048 };

/* Evicts so that every head of every layer holds another number of slots. */
static void evict_raggedly(ag_kv_cache *c) {
    const size_t bytes = block_bytes_of(c);
    uint32_t keep[TOKENS];
    size_t blocks = (size_t)LAYERS * HEADS * (TOKENS / AG_KV_BLOCK), slots = 0;
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        uint32_t n = 0;
        for (uint32_t s = 0; s < TOKENS; s++)
            if (below(LAYERS * HEADS) < i || s == 5) keep[n++] = s;
        assert_int_equal(ag_kv_cache_compact(c, i / HEADS, i % HEADS, keep, n, NULL), AG_OK);
        blocks -= TOKENS / AG_KV_BLOCK - ag_kv_blocks_for(n);
        slots += n;
        /* Memory returns at once, not after the last head has been compacted. */
        assert_int_equal(ag_kv_cache_memory_usage_bytes(c), blocks * bytes);
        assert_int_equal(ag_memory_bytes_in_use(memory), blocks * bytes);
    }
    survey s = {0};
    see(&s, c);
    assert_int_equal(s.n_blocks, blocks);
    const size_t resident = resident_in(&s), kept = slots * (bytes / AG_KV_BLOCK);
    print_message("%zu bytes kept, %zu resident\n", kept, resident);
    assert_true(resident >= kept);
    assert_true(resident - kept <= LAYERS * HEADS * bytes);
}

static void resident_memory_follows_head_lengths(void **state) {
    (void)state;
    if (device) skip(); /* see returns_device_memory_when_a_head_shrinks */
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    for (size_t t = 0; t < 4; t++) {
        const ag_kv_params p = {.n_layers = LAYERS,
                                .n_kv_heads = HEADS,
                                .head_dim = 64,
                                .max_slots = TOKENS,
                                .k_type = types[t],
                                .v_type = types[t]};
        ag_kv_cache *c = make(&p);
        for (uint32_t at = 0; at < TOKENS; at += 512) append(c, at, 512, 1);
        evict_raggedly(c);
        ag_kv_cache_destroy(c);
        assert_int_equal(ag_memory_bytes_in_use(memory), 0);
    }
}

/* A device frees slabs and moves blocks together for that, except a reserve. */
static void returns_device_memory_when_a_head_shrinks(void **state) {
    (void)state;
    const ag_kv_params p = {.n_layers = LAYERS,
                            .n_kv_heads = HEADS,
                            .head_dim = 32,
                            .max_slots = TOKENS,
                            .k_type = AG_F16,
                            .v_type = AG_Q8_0};
    if (!device) skip();
    ag_kv_cache *c = make(&p);
    const size_t bytes = block_bytes_of(c);
    append(c, 0, TOKENS, 1);
    assert_int_equal(ag_memory_bytes_in_use(memory), ag_kv_cache_capacity_bytes(c));
    uint32_t keep[TOKENS];
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        const uint32_t n = 5 + i * 100; /* almost nothing of the first head */
        for (uint32_t s = 0; s < n; s++) keep[s] = TOKENS - n + s;
        assert_int_equal(ag_kv_cache_compact(c, i / HEADS, i % HEADS, keep, n, NULL), AG_OK);
        const size_t live = ag_kv_cache_memory_usage_bytes(c) / bytes;
        const size_t has = ag_memory_bytes_in_use(memory) / bytes;
        const size_t row = LAYERS * HEADS, spare = live / 4 > row ? live / 4 : row;
        assert_in_range(has, live, live + spare);
    }
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        for (uint32_t s = 0; s < 5 + i * 100; s += 1 + below(40)) {
            float key[32], value[32];
            const uint32_t position = TOKENS - (5 + i * 100) + s;
            assert_int_equal(ag_kv_cache_position(c, i / HEADS, i % HEADS, s), position);
            assert_int_equal(ag_kv_cache_read(c, i / HEADS, i % HEADS, s, key, value, NULL), AG_OK);
            const float v = mark_of(1, position, i % HEADS); /* rounded to 11 bits, and to 8 */
            assert_true(key[3] >= v * 0.999f && key[3] <= v * 1.001f);
            assert_true(value[3] <= -v * 0.99f && value[3] >= -v * 1.01f);
        }
    }
    ag_kv_cache_destroy(c);
    assert_int_equal(ag_memory_bytes_in_use(memory), 0);
}

/* ---- forks ---- */

enum { N_CACHES = 6, MANY_STEPS = 400, SLOTS = 700 };

typedef struct slot {
    uint32_t position, mark;
} slot;

typedef struct sequence {
    ag_kv_cache *cache;
    uint32_t position, n[LAYERS][HEADS];
    slot slots[LAYERS][HEADS][SLOTS];
} sequence;

static const ag_kv_params small = {.n_layers = LAYERS,
                                   .n_kv_heads = HEADS,
                                   .head_dim = 2,
                                   .max_slots = SLOTS,
                                   .k_type = AG_F32,
                                   .v_type = AG_F32};

static void grow(sequence *s, uint32_t mark) {
    uint32_t n = 1 + below(200), longest = ag_kv_cache_length(s->cache);
    if (n > SLOTS - longest) n = SLOTS - longest;
    if (!n || s->position > 1800) return;
    append(s->cache, s->position, n, mark);
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        for (uint32_t t = 0; t < n; t++)
            s->slots[i / HEADS][i % HEADS][s->n[i / HEADS][i % HEADS]++] =
                (slot){s->position + t, mark};
    }
    s->position += n;
}

static void thin_out(sequence *s, uint32_t layer, uint32_t head) {
    uint32_t keep[SLOTS], n = 0;
    const uint32_t share = below(5);
    slot *slots = s->slots[layer][head];
    for (uint32_t i = 0; i < s->n[layer][head]; i++) {
        if (below(4) >= share) continue;
        slots[n] = slots[i];
        keep[n++] = i;
    }
    assert_int_equal(ag_kv_cache_compact(s->cache, layer, head, keep, n, NULL), AG_OK);
    s->n[layer][head] = n;
}

static void roll_back(sequence *s) {
    s->position = below(s->position + 1);
    assert_int_equal(ag_kv_cache_truncate(s->cache, s->position, NULL), AG_OK);
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        uint32_t *n = &s->n[i / HEADS][i % HEADS];
        while (*n && s->slots[i / HEADS][i % HEADS][*n - 1].position >= s->position) --*n;
    }
}

/* Reads some slots of each head; on a device each needs a call of its own. */
static void expect_slots(const sequence *s, uint32_t most_apart) {
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        const uint32_t l = i / HEADS, h = i % HEADS;
        assert_int_equal(ag_kv_cache_n_slots(s->cache, l, h), s->n[l][h]);
        for (uint32_t t = below(5); t < s->n[l][h]; t += 1 + below(most_apart)) {
            const slot *want = &s->slots[l][h][t];
            const float v = mark_of(want->mark, want->position, h);
            float key[2], value[2];
            assert_int_equal(ag_kv_cache_position(s->cache, l, h, t), want->position);
            assert_int_equal(ag_kv_cache_read(s->cache, l, h, t, key, value, NULL), AG_OK);
            assert_true(key[1] == v && value[0] == -v);
        }
    }
}

static void expect_figures(const sequence *s, uint32_t n) {
    survey *all = calloc(1, sizeof *all);
    size_t bytes = 0, alone = 0;
    assert_non_null(all);
    for (uint32_t i = 0; i < n; i++) {
        see(all, s[i].cache);
        bytes += ag_kv_cache_memory_usage_bytes(s[i].cache);
        alone += ag_kv_cache_memory_usage_bytes(s[i].cache) - ag_kv_cache_shared_bytes(s[i].cache);
    }
    const size_t in_use = ag_memory_bytes_in_use(memory), live = all->n_blocks;
    const size_t row = LAYERS * HEADS, spare = live / 4 > row ? live / 4 : row;
    if (n && !device) assert_int_equal(in_use, live * block_bytes_of(s[0].cache));
    if (n && device)
        assert_in_range(in_use / block_bytes_of(s[0].cache), live, live ? live + spare : 0);
    assert_true(alone <= in_use && (device || in_use <= bytes));
    if (n && device) assert_in_range(pool_of(s[0].cache)->n_arenas, 0, AG_KV_BUFFERS);
    free(all);
}

static void forks_agree_with_plain_lists(void **state) {
    (void)state;
    sequence *s = calloc(N_CACHES, sizeof *s);
    uint32_t n = 0;
    assert_non_null(s);
    const bool slow = device && strcmp(device, "hidden") != 0;
    for (uint32_t step = 0; step < (slow ? MANY_STEPS / 3 : MANY_STEPS); step++) {
        const uint32_t what = below(12), at = n ? below(n) : 0;
        if (!n || (what == 0 && n < N_CACHES)) {
            s[n] = (sequence){.cache = make(&small)};
            grow(&s[n++], step);
        } else if (what < 4 && n < N_CACHES) {
            s[n] = s[at];
            assert_int_equal(ag_kv_cache_fork(s[at].cache, &s[n].cache, NULL), AG_OK);
            n++;
        } else if (what == 4 || (what == 5 && n == N_CACHES)) {
            ag_kv_cache_destroy(s[at].cache);
            s[at] = s[--n];
        } else if (what < 7) thin_out(&s[at], below(LAYERS), below(HEADS));
        else if (what == 7) roll_back(&s[at]);
        else grow(&s[at], step);
        expect_figures(s, n);
        for (uint32_t i = 0; i < n && step % 5 == 0; i++) expect_slots(&s[i], slow ? 45 : 9);
    }
    while (n) ag_kv_cache_destroy(s[--n].cache);
    assert_int_equal(ag_memory_bytes_in_use(memory), 0);
    free(s);
}

/* ---- many sessions ---- */

enum { SESSIONS = 10000, AT_ONCE = 24, LONGEST = 700 };

typedef struct session {
    ag_kv_cache *cache;
    uint32_t n;
} session;

/* Returns resident bytes for each live one; on a device allocated bytes. */
static double share_of(const session *s) {
    survey *all = calloc(1, sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < AT_ONCE; i++)
        if (s[i].cache) see(all, s[i].cache);
    assert_true(all->n_blocks > 0);
    const double in_use = (double)ag_memory_bytes_in_use(memory);
    const double ratio = device ? in_use / (double)(all->n_blocks * block_bytes_of(s[0].cache))
                                : (double)resident_in(all) / in_use;
    free(all);
    return ratio;
}

/* A session begins with a prompt and continues while others begin, continue and end. */
static void live_and_die(ag_dtype type, uint32_t n_sessions) {
    const ag_kv_params p = {.n_layers = 1,
                            .n_kv_heads = 2,
                            .head_dim = 32,
                            .max_slots = LONGEST,
                            .k_type = type,
                            .v_type = type};
    session s[AT_ONCE] = {{0}};
    double most = 0;
    for (uint32_t i = 0; i < AT_ONCE; i++) s[i].cache = make(&p);
    for (uint32_t i = 0; i < n_sessions; i++) {
        session *next = &s[below(AT_ONCE)];
        ag_kv_cache_destroy(next->cache);
        *next = (session){make(&p), 1 + below(LONGEST / 2)};
        append(next->cache, 0, next->n, 0);
        for (int k = 0; k < 2; k++) {
            session *other = &s[below(AT_ONCE)];
            const uint32_t more = 1 + below(100);
            if (other->n + more > LONGEST) continue;
            append(other->cache, other->n, more, 0);
            other->n += more;
        }
        if (i % 100 == 99 && share_of(s) > most) most = share_of(s);
    }
    print_message("at most %.3f bytes resident for a live one\n", most);
    assert_true(most > 0.9 && most < 1.1); /* the last pages of a head may not be resident yet */
    for (size_t i = 0; i < AT_ONCE; i++) ag_kv_cache_destroy(s[i].cache);
    assert_int_equal(ag_memory_bytes_in_use(memory), 0);
}

static uint32_t sessions = SESSIONS;

static void sessions_leave_no_holes(void **state) {
    (void)state;
    live_and_die(AG_F16, sessions);
    live_and_die(AG_Q4_0, sessions);
}

/* Returns the bytes of a device's slabs, with those about to be made. */
static const ag_memory_ops *ops_of_memory;
static size_t most_in_slabs;

static ag_status alloc_watched(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                               ag_error *err) {
    size_t in_slabs = bytes;
    for (const ag_block_pool *p = backend->block_pools; p; p = p->next) {
        for (size_t i = 0; i < p->n_arenas; i++) in_slabs += ag_buffer_size(p->arenas[i]->buffer);
    }
    if (usage == AG_USAGE_KV && in_slabs > most_in_slabs) most_in_slabs = in_slabs;
    return ops_of_memory->alloc(mem, bytes, usage, out, err);
}

/* Short sessions of equal length take the memory of their slots plus 5 %. After half of them
 * have ended, the others take theirs. */
static void short_sessions_take_memory_for_their_slots(void **state) {
    (void)state;
    enum { N = 24, ROWS = 3 };
    ag_kv_cache *c[N];
    for (uint32_t i = 0; i < N; i++) c[i] = make(&small);
    ops_of_memory = memory->ops;
    ag_memory_ops watching = *ops_of_memory;
    watching.alloc = alloc_watched;
    memory->ops = &watching;
    most_in_slabs = 0;
    const size_t block = block_bytes_of(c[0]), row = LAYERS * HEADS * block;
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < N; i++) {
            append(c[i], r * 128, 60 + r * 30, i);
            const size_t slots = (r * N + i + 1) * row;
            assert_in_range(ag_memory_bytes_in_use(memory), slots, slots + slots / 20);
            if (device)
                assert_in_range(most_in_slabs, slots, ag_block_pool_max_bytes(memory, slots));
            append(c[i], r * 128 + 60 + r * 30, 68 - r * 30, i);
        }
    }
    memory->ops = ops_of_memory;
    for (uint32_t i = 0; i < N; i += 2) ag_kv_cache_destroy(c[i]);
    const size_t rest = N / 2 * ROWS * row;
    assert_in_range(ag_memory_bytes_in_use(memory), rest, rest + rest / 10);
    for (uint32_t i = 1; i < N; i += 2) {
        float key[2], value[2];
        for (uint32_t h = 0; h < LAYERS * HEADS; h++) {
            const uint32_t s = below(128 * ROWS);
            assert_int_equal(ag_kv_cache_read(c[i], h / HEADS, h % HEADS, s, key, value, NULL),
                             AG_OK);
            assert_true(key[0] == mark_of(i, s, h % HEADS) && value[1] == -key[0]);
        }
    }
    for (uint32_t i = 1; i < N; i += 2) ag_kv_cache_destroy(c[i]);
    assert_int_equal(ag_memory_bytes_in_use(memory), 0);
}

/* ---- failures ---- */

static ag_status no_copy(ag_backend *b, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                         size_t src_offset, size_t n) {
    (void)dst;
    (void)dst_offset;
    (void)src;
    (void)src_offset;
    return AG_FAIL(&b->err, DEVICE, "copying %zu bytes", n);
}

static void expect_tokens(ag_kv_cache *c, uint32_t n, uint32_t mark) {
    for (uint32_t h = 0; h < LAYERS * HEADS; h++) {
        for (uint32_t s = 0; s < n; s++) {
            float key[2], value[2];
            assert_int_equal(ag_kv_cache_read(c, h / HEADS, h % HEADS, s, key, value, NULL), AG_OK);
            assert_true(key[0] == mark_of(mark, s, h % HEADS) && value[1] == -key[0]);
        }
    }
}

/* With the maximum number of slabs, growing copies a slab; shrinking may too. */
static void keeps_blocks_that_cannot_move(void **state) {
    (void)state;
    enum { N = AG_KV_BUFFERS };
    ag_kv_cache *c[N];
    ag_error err;
    if (!device) skip();
    for (uint32_t i = 0; i < N; i++) {
        c[i] = make(&small);
        append(c[i], 0, 100, i);
    }
    const ag_block_pool *pool = pool_of(c[0]);
    const size_t before = ag_memory_bytes_in_use(memory);
    assert_int_equal(pool->n_arenas, N);
    const ag_backend_ops *const ops = backend->ops;
    ag_backend_ops failing = *ops;
    failing.copy_bytes = no_copy;
    backend->ops = &failing;
    assert_int_equal(ag_kv_cache_reserve(c[3], 60, &err), AG_DEVICE);
    assert_int_equal(ag_memory_bytes_in_use(memory), before);
    backend->ops = ops;
    for (uint32_t i = 0; i < N; i++) expect_tokens(c[i], 100, i);
    append(c[3], 100, 60, 3);
    assert_int_equal(pool->n_arenas, N);
    expect_tokens(c[3], 160, 3);
    /* Removes one of two blocks of each head: a slab is half empty. */
    for (uint32_t i = 4; i < N; i++) append(c[i], 100, 60, i);
    backend->ops = &failing;
    for (uint32_t i = 0; i < N; i++) assert_int_equal(ag_kv_cache_truncate(c[i], 90, NULL), AG_OK);
    ag_kv_cache_destroy(c[0]);
    const size_t left = ag_memory_bytes_in_use(memory);
    backend->ops = ops;
    for (uint32_t i = 1; i < N; i++) expect_tokens(c[i], 90, i);
    ag_kv_cache_destroy(c[1]);
    assert_true(ag_memory_bytes_in_use(memory) < left);
    for (uint32_t i = 2; i < N; i++) {
        expect_tokens(c[i], 90, i);
        ag_kv_cache_destroy(c[i]);
    }
    assert_int_equal(ag_memory_bytes_in_use(memory), 0);
}

/* Memory reserved for one cache of a pass must not be counted for another. */
static void reserves_for_all_caches_of_a_pass(void **state) {
    (void)state;
    enum { N = 8 };
    ag_kv_growth grow[N];
    ag_error err;
    for (uint32_t i = 0; i < N; i++) {
        grow[i] = (ag_kv_growth){.cache = make(&small), .n = i % 3 ? 60 : 200};
        append(grow[i].cache, 0, 100, i);
    }
    const ag_block_pool *pool = pool_of(grow[0].cache);
    assert_int_equal(ag_kv_caches_reserve(grow, N, &err), AG_OK);
    assert_true(pool->n_free >= (size_t)LAYERS * HEADS * (3 * 2 + 5));
    const size_t promised = ag_memory_bytes_in_use(memory);
    const ag_block_pool before = *pool;
    for (uint32_t i = 0; i < N; i++) append(grow[i].cache, 100, grow[i].n, i);
    assert_int_equal(pool->n_arenas, before.n_arenas);
    if (device) assert_int_equal(ag_memory_bytes_in_use(memory), promised);
    for (uint32_t i = 0; i < N; i++) {
        expect_tokens(grow[i].cache, 100 + grow[i].n, i);
        ag_kv_cache_destroy(grow[i].cache);
    }
}

/* ---- the end ---- */

static size_t anonymous_memory(void) {
    ag_memory_usage u;
    return ag_process_memory(&u) == AG_OK ? u.anonymous : 0;
}

static void frees_all_memory(void **state) {
    (void)state;
    enum { MIB = 1 << 20 };
    if (SANITIZED || device) skip();
    ag_kv_params p = small;
    p.head_dim = 256;
    ag_kv_cache *c = make(&p), *fork;
    append(c, 0, 1, 0);
    const size_t before = anonymous_memory();
    if (!before) skip();
    append(c, 1, SLOTS - 1, 0);
    assert_int_equal(ag_kv_cache_fork(c, &fork, NULL), AG_OK);
    const size_t taken = anonymous_memory() - before;
    assert_true(taken > 10 * MIB);
    ag_kv_cache_destroy(c);
    ag_kv_cache_destroy(fork);
    const size_t left = anonymous_memory();
    assert_true(left < before + MIB);
}

static int start(void **state) {
    (void)state;
    const bool hidden = device && strcmp(device, "hidden") == 0;
    backend = hidden ? plain_backend_create(false) : open_backend(device, 1);
    if (!backend) return 1;
    memory = ag_backend_memory(backend);
    return 0;
}

static int stop(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

/* Usage: test_kv_pool [hidden|BACKEND [SESSIONS]]. */
int main(int argc, char **argv) {
    device = argc > 1 ? argv[1] : NULL;
    if (argc > 2) sessions = (uint32_t)strtoul(argv[2], NULL, 10);
    if (device && strcmp(device, "hidden") != 0) {
        ag_backend *there = open_backend(device, 1);
        if (!there) return EXIT_SKIPPED;
        ag_backend_destroy(there);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resident_memory_follows_head_lengths),
        cmocka_unit_test(returns_device_memory_when_a_head_shrinks),
        cmocka_unit_test(forks_agree_with_plain_lists),
        cmocka_unit_test(short_sessions_take_memory_for_their_slots),
        cmocka_unit_test(sessions_leave_no_holes),
        cmocka_unit_test(keeps_blocks_that_cannot_move),
        cmocka_unit_test(reserves_for_all_caches_of_a_pass),
        cmocka_unit_test(frees_all_memory),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
