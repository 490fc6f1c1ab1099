/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/top_k.cl: finds the best values of a row. The host reads a few hundred bytes.
 */
#include "backend/opencl/opencl.h"
#include "backend/opencl/ops.h"
#include "backend/opencl/steps.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

static const char file[] = "top_k.cl";
enum { CHUNK = 2048, JOINED = 8, MIN_RETAINED = 64, MAX_RETAINED = 512 }; /* as in the file */
/* Numbers of results and ids are rounded up to a multiple of STEP, so that they rarely change. */
enum { STEP = 32 };

typedef struct work {
    ag_cl_backend *cl;
    const ag_tensor *row;
    const ag_top_k *top;
    char options[40];
    cl_mem lists;
    size_t n, n_lists, retained, wg, k, n_ids;
    size_t bad_at, ids_at, out_at, out_bytes; /* offsets in scratch memory */
} work;

static size_t head_words(const work *w) { return 2 + w->n_ids; }

static ag_status choose_sizes(work *w) {
    w->n_lists = (w->n + CHUNK - 1) / CHUNK;
    w->retained = MIN_RETAINED;
    while (w->retained < w->top->k) w->retained *= 2;
    w->wg = w->cl->sizes.top_wg;
    snprintf(w->options, sizeof w->options, "-DRETAINED=%zu -DWG=%zu", w->retained, w->wg);
    w->bad_at = w->n_lists * w->retained * sizeof(uint64_t);
    w->ids_at = w->bad_at + ag_cl_items(w->n_lists * sizeof(uint32_t), 256);
    w->out_at = w->ids_at + AG_TOP_K_IDS * sizeof(int32_t);
    w->n_ids = ag_cl_items(w->top->n_ids, STEP);
    w->k = ag_cl_items(w->top->k, STEP);
    w->out_bytes = head_words(w) * sizeof(uint32_t) + w->k * sizeof(uint64_t);
    return ag_cl_need_scratch(w->cl, w->out_at + w->out_bytes, &w->lists);
}

static ag_status sort_chunks(const work *w) {
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, w->cl, file, "sort_chunks", w->options));
    ag_cl_arg_part(&l, w->lists, 0);
    ag_cl_arg_part(&l, w->lists, w->bad_at);
    ag_cl_arg_tensor(&l, w->row);
    ag_cl_arg_u32(&l, (uint32_t)w->n);
    return ag_cl_enqueue(&l, 1, (size_t[]){w->n_lists * w->wg}, (size_t[]){w->wg});
}

static ag_status join_lists(const work *w) {
    for (size_t apart = 1; apart < w->n_lists; apart *= JOINED) {
        const size_t groups = (w->n_lists + JOINED * apart - 1) / (JOINED * apart);
        ag_cl_launch l;
        AG_TRY(ag_cl_begin(&l, w->cl, file, "join_lists", w->options));
        ag_cl_arg_part(&l, w->lists, 0);
        ag_cl_arg_u32(&l, (uint32_t)w->n_lists);
        ag_cl_arg_u32(&l, (uint32_t)apart);
        AG_TRY(ag_cl_enqueue(&l, 1, (size_t[]){groups * w->wg}, (size_t[]){w->wg}));
    }
    return AG_OK;
}

static ag_status send_ids(const work *w) {
    int32_t ids[AG_TOP_K_IDS] = {0};
    if (!w->n_ids) return AG_OK;
    memcpy(ids, w->top->ids, w->top->n_ids * sizeof *ids);
    return ag_cl_stage_into(w->cl, w->lists, w->ids_at, ids, w->n_ids * sizeof *ids,
                            &w->cl->base.err);
}

static ag_status take_best(const work *w) {
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, w->cl, file, "take_best", w->options));
    ag_cl_arg_part(&l, w->lists, w->out_at);
    ag_cl_arg_part(&l, w->lists, 0);
    ag_cl_arg_part(&l, w->lists, w->bad_at);
    ag_cl_arg_u32(&l, (uint32_t)w->n_lists);
    ag_cl_arg_tensor(&l, w->row);
    ag_cl_arg_part(&l, w->lists, w->ids_at);
    ag_cl_arg_u32(&l, (uint32_t)w->n_ids);
    ag_cl_arg_u32(&l, (uint32_t)w->k);
    return ag_cl_enqueue(&l, 1, (size_t[]){w->wg}, (size_t[]){w->wg});
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
    const unsigned char *best = bytes + head_words(w) * sizeof(uint32_t);
    for (top->n = 0; top->n < top->k; top->n++) {
        uint64_t candidate;
        memcpy(&candidate, best + top->n * sizeof candidate, sizeof candidate);
        if (!candidate) break;
        ag_cl_candidate(candidate, &top->best_ids[top->n], &top->best[top->n]);
    }
}

ag_status ag_cl_top_k(ag_backend *b, const ag_tensor *row, ag_top_k *top) {
    work w = {.cl = ag_cl_of(b), .row = row, .top = top, .n = ag_shape_numel(&row->shape)};
    unsigned char bytes[(2 + AG_TOP_K_IDS) * sizeof(uint32_t) + AG_TOP_K_MAX * sizeof(uint64_t)];
    _Static_assert((int)AG_TOP_K_MAX <= (int)MAX_RETAINED && AG_TOP_K_IDS % STEP == 0 &&
                       AG_TOP_K_MAX % STEP == 0,
                   "what the kernel keeps");
    AG_TRY(choose_sizes(&w));
    AG_TRY(send_ids(&w));
    AG_TRY(sort_chunks(&w));
    AG_TRY(join_lists(&w));
    AG_TRY(take_best(&w));
    cl_int code = w.cl->api.clEnqueueReadBuffer(w.cl->queue, w.lists, CL_TRUE, w.out_at,
                                                w.out_bytes, bytes, 0, NULL, NULL);
    if (code != CL_SUCCESS) return ag_cl_fail(w.cl, &b->err, code, "reading the best of a row");
    unpack(&w, bytes, top);
    return AG_OK;
}
