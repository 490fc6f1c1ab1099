/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/top_k.cl: finds the best values of rows. The host reads a few hundred bytes
 * of each. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

static const char file[] = "top_k.cl";
enum { TEAM = 8, MAX_PARTS = 2048, LISTED = 1024 }; /* as in the file */
/* Numbers of results and ids are rounded up to a multiple of STEP, so that they rarely change. */
enum { STEP = 32 };

/* Rows of one call, each with the same number of results and ids. */
typedef struct work {
    ag_cl_backend *cl;
    const ag_tensor *rows;
    ag_top_k *const *tops; /* [n_rows]; NULL: the row is not wanted */
    size_t n_rows, n;
    char options[80];
    cl_mem scratch;
    unsigned char *host; /* ids and mask of each row, then results */
    size_t n_parts, wg, k, n_ids;
    size_t n_words;                   /* words of a mask; 0: no row has one */
    size_t ids_at, out_at, out_bytes; /* offsets in scratch memory; bytes of a row */
} work;

static size_t ids_bytes(const work *w) {
    return w->n_rows * (w->n_ids + w->n_words) * sizeof(int32_t);
}

static ag_status choose_sizes(work *w) {
    size_t k = 1, n_ids = 0, part = TEAM;
    for (size_t r = 0; r < w->n_rows; r++) {
        if (w->tops[r] && w->tops[r]->k > k) k = w->tops[r]->k;
        if (w->tops[r] && w->tops[r]->n_ids > n_ids) n_ids = w->tops[r]->n_ids;
        if (w->tops[r] && w->tops[r]->mask) w->n_words = (w->n + 31) / 32;
    }
    while (w->n > part * MAX_PARTS) part *= 2;
    w->n_parts = (w->n + part - 1) / part;
    w->wg = w->cl->sizes.top_wg;
    snprintf(w->options, sizeof w->options, "-DPART=%zu -DWG=%zu%s", part, w->wg,
             w->n_words ? " -DMASK=1" : "");
    w->n_ids = ag_cl_items(n_ids, STEP);
    w->k = ag_cl_items(k, STEP);
    w->ids_at = ag_cl_items(w->n_rows * w->n_parts * sizeof(uint32_t), 256);
    w->out_at = w->ids_at + ag_cl_items(ids_bytes(w), 256);
    w->out_bytes = (2 + w->n_ids) * sizeof(uint32_t) + w->k * sizeof(uint64_t);
    const size_t results = w->n_rows * w->out_bytes;
    AG_TRY(ag_cl_need_joined(w->cl, ids_bytes(w) + results, &w->host));
    return ag_cl_need_scratch(w->cl, w->out_at + results, &w->scratch);
}

static ag_status send_ids(const work *w) {
    int32_t *ids = (int32_t *)(void *)w->host;
    const size_t mask_bytes = w->n_words * sizeof *ids;
    if (!ids_bytes(w)) return AG_OK;
    memset(ids, 0, ids_bytes(w));
    for (size_t r = 0; r < w->n_rows; r++, ids += w->n_ids + w->n_words) {
        const ag_top_k *top = w->tops[r];
        if (!top) continue;
        if (top->n_ids) memcpy(ids, top->ids, top->n_ids * sizeof *ids);
        if (top->mask) memcpy(ids + w->n_ids, top->mask, mask_bytes);
        else memset(ids + w->n_ids, 0xFF, mask_bytes);
    }
    return ag_cl_stage_into(w->cl, w->scratch, w->ids_at, w->host, ids_bytes(w), &w->cl->base.err);
}

/* Launches one of the two kernels, with `groups` work-groups for each row. */
static ag_status launch(const work *w, const char *kernel, size_t groups) {
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, w->cl, file, kernel, w->options));
    ag_cl_arg_part(&l, w->scratch, 0);
    ag_cl_arg_part(&l, w->scratch, w->out_at);
    ag_cl_arg_tensor(&l, w->rows);
    ag_cl_arg_u32(&l, (uint32_t)w->n);
    ag_cl_arg_part(&l, w->scratch, w->ids_at);
    AG_CL_ARG_U32S(&l, w->n_ids, w->k);
    return ag_cl_enqueue(&l, 2, (size_t[]){groups * w->wg, w->n_rows}, (size_t[]){w->wg, 1});
}

void ag_cl_candidate(uint64_t candidate, int32_t *id, float *value) {
    const uint32_t order = (uint32_t)(candidate >> 32);
    const uint32_t bits = order & 0x80000000u ? order & 0x7fffffffu : ~order;
    memcpy(value, &bits, sizeof *value);
    *id = (int32_t) ~(uint32_t)candidate;
}

static void unpack(const work *w, const unsigned char *bytes, ag_top_k *top) {
    uint32_t bad;
    memcpy(&bad, bytes, sizeof bad);
    top->bad = bad == UINT32_MAX ? SIZE_MAX : bad;
    if (top->n_ids) memcpy(top->at, bytes + 2 * sizeof bad, top->n_ids * sizeof *top->at);
    const unsigned char *best = bytes + (2 + w->n_ids) * sizeof(uint32_t);
    for (top->n = 0; top->n < top->k; top->n++) {
        uint64_t candidate;
        memcpy(&candidate, best + top->n * sizeof candidate, sizeof candidate);
        if (!candidate) break;
        ag_cl_candidate(candidate, &top->best_ids[top->n], &top->best[top->n]);
    }
    top->known = true;
}

ag_status ag_cl_top_k(ag_backend *b, const ag_tensor *rows, ag_top_k *const tops[]) {
    work w = {.cl = ag_cl_of(b),
              .rows = rows,
              .tops = tops,
              .n_rows = ag_shape_rows(&rows->shape),
              .n = ag_shape_cols(&rows->shape)};
    _Static_assert((int)AG_TOP_K_MAX + STEP <= (int)LISTED && STEP % 2 == 0,
                   "constants of the kernels");
    AG_TRY(choose_sizes(&w));
    AG_TRY(send_ids(&w));
    const size_t teams = w.wg / TEAM;
    AG_TRY(launch(&w, "find_maxima", (w.n_parts + teams - 1) / teams + 1));
    AG_TRY(launch(&w, "take_best", 1));
    unsigned char *results = w.host + ids_bytes(&w);
    AG_TRY(ag_cl_read(w.cl, w.scratch, w.out_at, w.n_rows * w.out_bytes, results, &b->err));
    for (size_t r = 0; r < w.n_rows; r++) {
        if (tops[r]) unpack(&w, results + r * w.out_bytes, tops[r]);
    }
    return AG_OK;
}
