/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a cache's blocks for kernels/kv_table.cl. Tables stay on the device and are uploaded
 * again only if they change. */
#include "backend/opencl/ops.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

enum { FIRST_WORDS = 1 << 16, MAX_TABLES = 1 << 12, ALIGN_WORDS = 8, BUFFER_SHIFT = 56 };

/* A table on the device. */
typedef struct table_entry {
    const void *of; /* key of the table; NULL: free. Never dereferenced: may be freed */
    size_t n_rows;
    size_t at, capacity; /* in words */
    size_t n;            /* words of the table; 0: not made yet */
    size_t n_sent;       /* leading words that the device has */
    uint32_t released;   /* count of released memory objects when the table was made */
    ag_buffer *buffers[AG_KV_BUFFERS]; /* by number; none with addresses */
    size_t n_buffers;
} table_entry;

struct ag_cl_kv_tables {
    cl_mem mem;          /* owned */
    uint64_t *words;     /* owned; copy of mem */
    ag_kv_block *blocks; /* owned; [n_words] the block of each word */
    size_t n_words, used;
    table_entry entries[MAX_TABLES];
    size_t n_entries;
};

static void release_words(ag_cl_backend *cl, ag_cl_kv_tables *t) {
    if (t->mem) ag_cl_release_part(cl, t->mem);
    t->mem = NULL;
    ag_free(t->words);
    ag_free(t->blocks);
    t->words = NULL;
    t->blocks = NULL;
}

void ag_cl_kv_tables_close(ag_cl_backend *cl) {
    if (!cl->kv_tables) return;
    release_words(cl, cl->kv_tables);
    ag_free(cl->kv_tables);
    cl->kv_tables = NULL;
}

static void forget_all(ag_cl_kv_tables *t) {
    memset(t->entries, 0, sizeof t->entries);
    t->n_entries = t->used = 0;
}

/* Grows the buffer to n words. The old buffer lasts until enqueued commands are done. */
static ag_status need_words(ag_cl_backend *cl, ag_cl_kv_tables *t, size_t n) {
    ag_error *err = &cl->base.err;
    if (t->mem && n <= t->n_words / 4) return AG_OK;
    size_t wanted = t->n_words ? t->n_words : FIRST_WORDS;
    while (wanted / 4 < n) wanted *= 2;
    release_words(cl, t);
    t->words = ag_calloc(wanted, sizeof *t->words);
    t->blocks = ag_calloc(wanted, sizeof *t->blocks);
    if (!t->words || !t->blocks) return AG_FAIL(err, NOMEM, "tables of %zu KV blocks", wanted);
    AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_ONLY, wanted * sizeof *t->words, "for tables of blocks",
                         &t->mem, err));
    t->n_words = wanted;
    forget_all(t);
    return AG_OK;
}

/* Returns the entry of that table, or a free one. */
static table_entry *find_entry(ag_cl_kv_tables *t, const void *of, size_t n_rows) {
    size_t i = (size_t)((uintptr_t)of / sizeof(void *) * 2654435761u + n_rows) % MAX_TABLES;
    while (t->entries[i].of && (t->entries[i].of != of || t->entries[i].n_rows != n_rows))
        i = (i + 1) % MAX_TABLES;
    return &t->entries[i];
}

/* Returns the entry of the table with space for its words. */
static table_entry *claim_entry(ag_cl_kv_tables *t, const ag_cl_kv_rows *rows, size_t n) {
    const void *key = rows->key ? rows->key : rows->blocks;
    table_entry *p = find_entry(t, key, rows->n_rows);
    if (p->of && p->capacity >= n) return p;
    const size_t n_aligned = (n + ALIGN_WORDS - 1) / ALIGN_WORDS * ALIGN_WORDS;
    if (t->used + n_aligned > t->n_words || t->n_entries == MAX_TABLES / 2) {
        forget_all(t);
        p = find_entry(t, key, rows->n_rows);
    }
    t->n_entries += !p->of;
    *p = (table_entry){.of = key, .n_rows = rows->n_rows, .at = t->used, .capacity = n};
    t->used += n_aligned;
    return p;
}

/* Returns whether the device has the table of these blocks. */
static bool is_made(const ag_cl_backend *cl, const table_entry *p, const ag_cl_kv_rows *rows,
                    size_t n) {
    const ag_cl_kv_tables *t = cl->kv_tables;
    const ag_kv_block *made = t->blocks + p->at, *from = rows->blocks;
    const size_t row = rows->n_blocks * sizeof *made;
    if (p->n != n || p->released != cl->released) return false;
    if (rows->per_row == rows->n_blocks) return !memcmp(made, from, n * sizeof *made);
    for (size_t r = 0; r < rows->n_rows; r++, made += rows->n_blocks, from += rows->per_row)
        if (memcmp(made, from, row) != 0) return false;
    return true;
}

/* ---- making one ---- */

static ag_status number_of(ag_cl_backend *cl, table_entry *p, ag_buffer *buffer, uint64_t *out) {
    for (*out = 0; *out < p->n_buffers; ++*out) {
        if (p->buffers[*out] == buffer) return AG_OK;
    }
    if (p->n_buffers == AG_KV_BUFFERS)
        return AG_FAIL(&cl->base.err, LIMIT, "blocks of a cache in more than %d buffers",
                       AG_KV_BUFFERS);
    p->buffers[p->n_buffers++] = buffer;
    return AG_OK;
}

/* Writes the word of a block. none: of an entry without a block, whose memory kernels may read. */
static ag_status word_of(ag_cl_backend *cl, table_entry *p, const ag_kv_block *block,
                         const ag_kv_block *none, uint64_t *out) {
    uint64_t number;
    if (!block->buffer) block = none;
    *out = 0;
    if (!block->buffer) return AG_OK;
    if (cl->by_address) {
        AG_TRY(ag_cl_buffer_address(cl, block->buffer, out));
    } else {
        AG_TRY(number_of(cl, p, block->buffer, &number));
        *out = number << BUFFER_SHIFT;
    }
    *out += block->offset;
    return AG_OK;
}

static ag_status make_words(ag_cl_backend *cl, table_entry *p, const ag_cl_kv_rows *rows,
                            bool *changed) {
    ag_cl_kv_tables *t = cl->kv_tables;
    uint64_t *to = t->words + p->at, word;
    ag_kv_block *block = t->blocks + p->at, none = {0};
    p->n_buffers = 0;
    for (size_t i = 0; i < (size_t)rows->n_rows * rows->per_row && !none.buffer; i++)
        none = rows->blocks[i];
    for (size_t r = 0; r < rows->n_rows; r++) {
        const ag_kv_block *from = rows->blocks + r * rows->per_row;
        for (uint32_t b = 0; b < rows->n_blocks; b++, to++, block++) {
            AG_TRY(word_of(cl, p, &from[b], &none, &word));
            *changed = *changed || *to != word;
            *to = word;
            *block = from[b];
        }
    }
    return AG_OK;
}

/* Makes and uploads the table unless the device has it. */
static ag_status keep_table(ag_cl_backend *cl, const ag_cl_kv_rows *rows, size_t n,
                            table_entry **out) {
    if (!cl->kv_tables) cl->kv_tables = ag_calloc(1, sizeof *cl->kv_tables);
    ag_cl_kv_tables *t = cl->kv_tables;
    if (!t) return AG_FAIL(&cl->base.err, NOMEM, "table of %zu KV blocks", n);
    AG_TRY(need_words(cl, t, n));
    table_entry *p = *out = claim_entry(t, rows, n);
    if (is_made(cl, p, rows, n)) return AG_OK;
    /* A larger slab may have the blocks at the same offsets. */
    const size_t word = sizeof *t->words, n_sent = p->n_sent;
    bool changed = n_sent < n;
    p->n = p->n_sent = 0;
    AG_TRY(make_words(cl, p, rows, &changed));
    if (changed) {
        AG_TRY(
            ag_cl_stage_into(cl, t->mem, p->at * word, t->words + p->at, n * word, &cl->base.err));
        cl->counts.tables++;
    }
    p->n = n;
    p->released = cl->released;
    p->n_sent = n_sent > n ? n_sent : n;
    return AG_OK;
}

/* ---- for launches ---- */

void ag_cl_arg_rows(ag_cl_launch *l, const ag_cl_kv_rows *rows) {
    const size_t n = rows->n_rows * rows->n_blocks;
    table_entry *p = NULL;
    if (l->code == CL_SUCCESS && n) {
        l->staged = keep_table(l->cl, rows, n, &p);
        if (l->staged != AG_OK) l->code = CL_OUT_OF_RESOURCES;
    }
    const bool is_ready = p && l->staged == AG_OK;
    for (size_t i = 0; i < AG_KV_BUFFERS; i++)
        ag_cl_arg_buffer(l, is_ready && i < p->n_buffers ? p->buffers[i] : NULL);
    ag_cl_arg_part(l, is_ready ? l->cl->kv_tables->mem : NULL,
                   is_ready ? p->at * sizeof(uint64_t) : 0);
    ag_cl_arg_u32(l, rows->n_blocks);
}

void ag_cl_arg_view(ag_cl_launch *l, const ag_kv_view *kv, const void *key, uint32_t n_blocks) {
    const ag_cl_kv_rows rows = {.blocks = kv->blocks,
                                .key = key,
                                .n_rows = kv->n_kv_heads,
                                .per_row = kv->blocks_per_head,
                                .n_blocks = n_blocks};
    ag_cl_arg_rows(l, &rows);
}
