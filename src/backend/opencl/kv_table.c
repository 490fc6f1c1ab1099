/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a cache's blocks for kernels/kv_table.cl. Tables stay on the device and are uploaded
 * again only if they change. */
#include "backend/opencl/opencl.h"
#include "backend/opencl/ops.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

enum { FIRST_WORDS = 1 << 16, MAX_TABLES = 1 << 12, ALIGN_WORDS = 8, BUFFER_SHIFT = 56 };

/* A table on the device. */
typedef struct table_entry {
    const void *of;       /* key of the table; NULL: free. Never dereferenced: may be freed */
    size_t n_rows, at, n; /* in words */
} table_entry;

struct ag_cl_kv_tables {
    cl_mem mem;      /* owned */
    uint64_t *words; /* owned; copy of mem */
    size_t n_words, used;
    uint64_t *made; /* owned; the table in preparation */
    size_t made_words;
    table_entry entries[MAX_TABLES];
    size_t n_entries;
};

void ag_cl_kv_tables_close(ag_cl_backend *cl) {
    ag_cl_kv_tables *t = cl->kv_tables;
    if (!t) return;
    if (t->mem) ag_cl_release_mem(cl, t->mem);
    ag_free(t->words);
    ag_free(t->made);
    ag_free(t);
    cl->kv_tables = NULL;
}

static void forget_all(ag_cl_kv_tables *t) {
    memset(t->entries, 0, sizeof t->entries);
    t->n_entries = t->used = 0;
}

/* Grows the buffer to n words. Enqueued commands retain the old buffer until they are done. */
static ag_status need_words(ag_cl_backend *cl, ag_cl_kv_tables *t, size_t n) {
    ag_error *err = &cl->base.err;
    if (t->mem && n <= t->n_words / 4) return AG_OK;
    size_t wanted = t->n_words ? t->n_words : FIRST_WORDS;
    while (wanted / 4 < n) wanted *= 2;
    if (t->mem) ag_cl_release_mem(cl, t->mem);
    t->mem = NULL;
    ag_free(t->words);
    t->words = ag_calloc(wanted, sizeof *t->words);
    if (!t->words) return AG_FAIL(err, NOMEM, "tables of %zu KV blocks", wanted);
    cl_int code;
    t->mem = cl->api.clCreateBuffer(cl->context, CL_MEM_READ_ONLY, wanted * sizeof *t->words, NULL,
                                    &code);
    if (code != CL_SUCCESS) {
        t->mem = NULL;
        return ag_cl_fail(cl, err, code, "%zu bytes for tables of blocks",
                          wanted * sizeof *t->words);
    }
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

/* Uploads t->made [n] unless the device has it, and writes its offset in words to *at. */
static ag_status keep_table(ag_cl_backend *cl, const ag_cl_kv_rows *rows, size_t n, size_t *at) {
    ag_cl_kv_tables *t = cl->kv_tables;
    const void *key = rows->key ? rows->key : rows->blocks;
    AG_TRY(need_words(cl, t, n));
    table_entry *p = find_entry(t, key, rows->n_rows);
    if (!p->of || p->n < n) {
        const size_t n_aligned = (n + ALIGN_WORDS - 1) / ALIGN_WORDS * ALIGN_WORDS;
        if (t->used + n_aligned > t->n_words || t->n_entries == MAX_TABLES / 2) {
            forget_all(t);
            p = find_entry(t, key, rows->n_rows);
        }
        t->n_entries += !p->of;
        *p = (table_entry){.of = key, .n_rows = rows->n_rows, .at = t->used, .n = n};
        t->used += n_aligned;
    } else if (memcmp(t->words + p->at, t->made, n * sizeof *t->made) == 0) {
        *at = p->at * sizeof *t->made;
        return AG_OK;
    }
    *at = p->at * sizeof *t->made;
    memcpy(t->words + p->at, t->made, n * sizeof *t->made);
    const ag_status st =
        ag_cl_stage_into(cl, t->mem, *at, t->made, n * sizeof *t->made, &cl->base.err);
    if (st != AG_OK) t->words[p->at] = ~t->made[0]; /* forces another upload */
    else cl->counts.tables++;
    return st;
}

/* ---- making one ---- */

typedef struct buffers {
    ag_buffer *list[AG_KV_BUFFERS];
    size_t n;
} buffers;

static ag_status number_of(ag_cl_backend *cl, buffers *b, ag_buffer *buffer, uint64_t *out) {
    for (*out = 0; *out < b->n; ++*out) {
        if (b->list[*out] == buffer) return AG_OK;
    }
    if (b->n == AG_KV_BUFFERS)
        return AG_FAIL(&cl->base.err, LIMIT, "blocks of a cache in more than %d buffers",
                       AG_KV_BUFFERS);
    b->list[b->n++] = buffer;
    return AG_OK;
}

static ag_status make_table(ag_cl_backend *cl, const ag_cl_kv_rows *rows, buffers *in) {
    const size_t n = rows->n_rows * rows->n_blocks;
    if (!cl->kv_tables) cl->kv_tables = ag_calloc(1, sizeof *cl->kv_tables);
    ag_cl_kv_tables *t = cl->kv_tables;
    if (t && t->made_words < n) {
        ag_free(t->made);
        t->made_words = 2 * n;
        t->made = ag_calloc(t->made_words, sizeof *t->made);
        if (!t->made) t->made_words = 0;
    }
    if (!t || t->made_words < n) return AG_FAIL(&cl->base.err, NOMEM, "table of %zu KV blocks", n);
    uint64_t *to = t->made, number = 0;
    for (size_t r = 0; r < rows->n_rows; r++) {
        const ag_kv_block *from = rows->blocks + r * rows->per_row;
        for (uint32_t b = 0; b < rows->n_blocks; b++, to++) {
            *to = 0;
            if (!from[b].buffer) continue;
            AG_TRY(number_of(cl, in, from[b].buffer, &number));
            *to = number << BUFFER_SHIFT | from[b].offset;
        }
    }
    return AG_OK;
}

/* ---- for launches ---- */

static ag_status find_table(ag_cl_launch *l, const ag_cl_kv_rows *rows, cl_mem *mem,
                            size_t *offset) {
    ag_cl_backend *cl = l->cl;
    const size_t n = rows->n_rows * rows->n_blocks;
    if (!n) return AG_OK;
    AG_TRY(keep_table(cl, rows, n, offset));
    *mem = cl->kv_tables->mem;
    return AG_OK;
}

void ag_cl_arg_rows(ag_cl_launch *l, const ag_cl_kv_rows *rows) {
    buffers in = {.n = 0};
    cl_mem mem = NULL;
    size_t offset = 0;
    if (l->code == CL_SUCCESS) {
        l->staged = make_table(l->cl, rows, &in);
        if (l->staged == AG_OK) l->staged = find_table(l, rows, &mem, &offset);
        if (l->staged != AG_OK) l->code = CL_OUT_OF_RESOURCES;
    }
    for (size_t i = 0; i < AG_KV_BUFFERS; i++) {
        ag_cl_arg_buffer(l, i < in.n ? in.list[i] : NULL);
    }
    ag_cl_arg_mem(l, mem);
    ag_cl_arg_u64(l, offset);
    ag_cl_arg_u32(l, rows->n_blocks);
}

void ag_cl_arg_view(ag_cl_launch *l, const ag_kv_view *kv, uint32_t n_blocks) {
    const ag_cl_kv_rows rows = {.blocks = kv->blocks,
                                .n_rows = kv->n_kv_heads,
                                .per_row = kv->blocks_per_head,
                                .n_blocks = n_blocks};
    ag_cl_arg_rows(l, &rows);
}
