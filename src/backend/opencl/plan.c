/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/plan.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16 };

static bool is_wanted(ag_cl_backend *cl) {
    const char *wanted = getenv("AG_OPENCL_PLAN");
    if (wanted && strcmp(wanted, "0") == 0) return false;
    if (!cl->plan) cl->plan = ag_calloc(1, sizeof *cl->plan);
    return cl->plan != NULL;
}

/* ---- room ---- */

static void forget(ag_cl_backend *cl, ag_cl_plan *p) {
    ag_cl_bound_release(cl, &p->launches);
    p->known = false;
}

void ag_cl_plan_sweep(ag_cl_backend *cl) {
    if (!atomic_exchange(&cl->bound_lost, false) || !cl->plan) return;
    forget(cl, cl->plan);
    ag_cl_bound_release(cl, &cl->plan->choice);
}

static void release_room(ag_cl_plan *p) {
    ag_free(p->layers);
    ag_free(p->blocks);
    ag_free(p->inbox);
    p->layers = NULL;
    p->blocks = NULL;
    p->inbox = NULL;
}

void ag_cl_plan_close(ag_cl_backend *cl) {
    if (!cl->plan) return;
    forget(cl, cl->plan);
    ag_cl_bound_release(cl, &cl->plan->choice);
    release_room(cl->plan);
    ag_free(cl->plan);
    cl->plan = NULL;
}

static size_t take(size_t *end, size_t bytes) {
    const size_t here = *end;
    *end = (here + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

static size_t slots_bytes(const ag_decode_step *step) {
    return (size_t)step->n_layers * step->kv[0].n_kv_heads * sizeof(uint32_t);
}

static void lay_out_inbox(ag_cl_plan *p, const ag_decode_step *step) {
    size_t end = 0;
    (void)take(&end, ag_shape_cols(&step->rows->shape) * sizeof(float));
    p->position_at = take(&end, sizeof step->position);
    p->inv_freq_at = take(&end, step->kv[0].head_dim / 2 * sizeof(float));
    p->before_at = take(&end, slots_bytes(step));
    p->after_at = take(&end, slots_bytes(step));
    p->scored_at = take(&end, slots_bytes(step));
    p->inbox_bytes = end;
}

static uint32_t end_block(const ag_kv_view *kv) {
    uint32_t most = 0;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        if (kv->n_slots[h] > most) most = kv->n_slots[h];
    }
    return most / AG_KV_BLOCK + 1;
}

static uint32_t first_block(const ag_kv_view *kv) {
    uint32_t least = kv->n_slots[0];
    for (uint32_t h = 1; h < kv->n_kv_heads; h++) {
        if (kv->n_slots[h] < least) least = kv->n_slots[h];
    }
    return least / AG_KV_BLOCK;
}

static uint32_t most_blocks(const ag_decode_step *step) {
    uint32_t most = 0;
    for (uint32_t l = 0; l < step->n_layers; l++) {
        const uint32_t n = end_block(&step->kv[l]);
        if (n > most) most = n;
    }
    return most;
}

/* Room for the step's key and inbox; false if there is none, on the host or behind the row. */
static bool reserve(ag_cl_plan *p, const ag_decode_step *step) {
    const uint32_t n_blocks = most_blocks(step);
    const size_t before = p->inbox_bytes;
    lay_out_inbox(p, step);
    if (p->inbox_bytes > ag_tensor_bytes(step->rows)) {
        release_room(p); /* it is not of this size any more */
        p->known = false;
        return false;
    }
    if (p->inbox && p->n_layers == step->n_layers && p->inbox_bytes == before &&
        p->max_blocks >= n_blocks) {
        return true;
    }
    release_room(p);
    p->known = false;
    p->n_layers = step->n_layers;
    p->max_blocks = 2 * n_blocks; /* so that a growing cache rarely asks */
    p->layers = ag_calloc(p->n_layers, sizeof *p->layers);
    p->blocks = ag_calloc((size_t)p->n_layers * p->max_blocks, sizeof *p->blocks);
    p->inbox = ag_calloc(1, p->inbox_bytes);
    if (p->layers && p->blocks && p->inbox) return true;
    release_room(p);
    return false;
}

/* ---- the key ---- */

static ag_cl_plan_layer layer_of(const ag_kv_view *kv) {
    return (ag_cl_plan_layer){
        .k_type = kv->k_type,
        .v_type = kv->v_type,
        .n_kv_heads = kv->n_kv_heads,
        .head_dim = kv->head_dim,
        .v_offset = kv->v_offset,
        .p_offset = kv->p_offset,
        .first = first_block(kv),
        .end = end_block(kv),
    };
}

static bool same_layer(const ag_cl_plan_layer *a, const ag_cl_plan_layer *b) {
    return a->k_type == b->k_type && a->v_type == b->v_type && a->n_kv_heads == b->n_kv_heads &&
           a->head_dim == b->head_dim && a->v_offset == b->v_offset && a->p_offset == b->p_offset &&
           a->first == b->first && a->end == b->end;
}

static bool same_blocks(const ag_kv_block *a, const ag_kv_block *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (a[i].buffer != b[i].buffer || a[i].offset != b[i].offset) return false;
    }
    return true;
}

static bool is_of(const ag_cl_plan *p, const ag_decode_step *step) {
    if (p->model != step->layers || p->hadamard != step->hadamard ||
        p->rows != step->rows->buffer || p->rows_at != step->rows->offset ||
        p->logits != step->logits->buffer || p->logits_at != step->logits->offset ||
        p->held_scores != step->held_scores || p->score_row0 != step->score_row0) {
        return false;
    }
    for (uint32_t l = 0; l < step->n_layers; l++) {
        const ag_cl_plan_layer now = layer_of(&step->kv[l]);
        const ag_kv_block *blocks = p->blocks + (size_t)l * p->max_blocks;
        if (!same_layer(&p->layers[l], &now)) return false;
        if (!same_blocks(blocks, step->kv[l].blocks, now.end)) return false;
    }
    return true;
}

static void set_key(ag_cl_plan *p, const ag_decode_step *step) {
    p->model = step->layers;
    p->hadamard = step->hadamard;
    p->rows = step->rows->buffer;
    p->rows_at = step->rows->offset;
    p->logits = step->logits->buffer;
    p->logits_at = step->logits->offset;
    p->held_scores = step->held_scores;
    p->score_row0 = step->score_row0;
    for (uint32_t l = 0; l < step->n_layers; l++) {
        p->layers[l] = layer_of(&step->kv[l]);
        memcpy(p->blocks + (size_t)l * p->max_blocks, step->kv[l].blocks,
               p->layers[l].end * sizeof *p->blocks);
    }
}

/* ---- the inbox ---- */

static ag_status send_inbox(ag_cl_backend *cl, ag_cl_plan *p, const ag_decode_step *step) {
    const uint32_t n_kv = step->kv[0].n_kv_heads;
    uint32_t *before = (uint32_t *)(void *)(p->inbox + p->before_at);
    uint32_t *after = (uint32_t *)(void *)(p->inbox + p->after_at);
    memcpy(p->inbox, step->embedding, ag_shape_cols(&step->rows->shape) * sizeof(float));
    memcpy(p->inbox + p->position_at, &step->position, sizeof step->position);
    memcpy(p->inbox + p->inv_freq_at, ag_tensor_f32(step->layers[0].inv_freq),
           step->kv[0].head_dim / 2 * sizeof(float));
    for (uint32_t l = 0; l < step->n_layers; l++) {
        for (uint32_t h = 0; h < n_kv; h++) {
            before[l * n_kv + h] = step->kv[l].n_slots[h];
            after[l * n_kv + h] = step->kv[l].n_slots[h] + 1;
        }
    }
    if (step->held_scores) memcpy(p->inbox + p->scored_at, step->scored, slots_bytes(step));
    return ag_buffer_upload(step->rows->buffer, step->rows->offset, p->inbox, p->inbox_bytes,
                            &cl->base.err);
}

/* Where the layer's n_slots lie, as they are at this moment of the step; 0: nowhere. */
static size_t place_of_slots(const ag_cl_plan *p, uint32_t layer, const uint32_t *n_slots,
                             size_t bytes) {
    const size_t row = layer * bytes;
    if (memcmp(n_slots, p->inbox + p->before_at + row, bytes) == 0) return p->before_at + row;
    if (memcmp(n_slots, p->inbox + p->after_at + row, bytes) == 0) return p->after_at + row;
    return 0;
}

/* An array is known by its address: equal values may mean different things for the next token. */
static size_t place_of(const ag_cl_plan *p, const void *data, size_t n) {
    const ag_decode_step *step = p->step;
    const size_t slots = step->kv[0].n_kv_heads * sizeof(uint32_t);
    if (data == step->positions && n == sizeof step->position) return p->position_at;
    if (data == ag_tensor_f32(step->layers[0].inv_freq) &&
        n == step->kv[0].head_dim / 2 * sizeof(float)) {
        return p->inv_freq_at;
    }
    for (uint32_t l = 0; l < step->n_layers; l++) {
        if (data == step->kv[l].n_slots && n == slots) {
            return place_of_slots(p, l, step->kv[l].n_slots, slots);
        }
        if (step->held_scores && data == step->scored + l * step->kv[0].n_kv_heads && n == slots) {
            return p->scored_at + l * slots;
        }
    }
    return 0;
}

static bool place(void *user, const void *data, size_t n, cl_mem *mem, size_t *offset) {
    ag_cl_backend *cl = user;
    const ag_cl_plan *p = cl->plan;
    const size_t at = place_of(p, data, n);
    *mem = ag_cl_buffer_of(cl, p->step->rows->buffer)->mem;
    *offset = p->step->rows->offset + at;
    return at != 0;
}

/* ---- a step ---- */

ag_cl_bound *ag_cl_plan_choice(ag_cl_backend *cl) {
    ag_cl_plan_sweep(cl);
    return is_wanted(cl) ? &cl->plan->choice : NULL;
}

static ag_status record(ag_cl_backend *cl, const ag_decode_step *step, ag_operations_fn operations,
                        void *user) {
    ag_cl_plan *p = cl->plan;
    p->known = false;
    set_key(p, step); /* the operations change what the views tell */
    p->step = step;
    ag_cl_bound_record(cl, &p->launches, place, cl);
    const ag_status st = operations(user);
    if (st == AG_OK && p->launches.unfit) p->unfit = step->layers;
    p->known = ag_cl_bound_stop(cl, &p->launches, st == AG_OK);
    p->step = NULL;
    return st;
}

static bool is_fit(const ag_cl_backend *cl, const ag_decode_step *step) {
    if (!step->n_layers || !ag_cl_buffer_of(cl, step->rows->buffer)) return false;
    for (uint32_t l = 0; l < step->n_layers; l++) {
        if (step->kv[l].n_kv_heads != step->kv[0].n_kv_heads) return false;
    }
    return cl->plan->unfit != step->layers && reserve(cl->plan, step);
}

ag_status ag_cl_repeat_step(ag_backend *b, const ag_decode_step *step, ag_operations_fn operations,
                            void *user, ag_repeat *done) {
    ag_cl_backend *cl = ag_cl_of(b);
    ag_cl_plan_sweep(cl);
    if (!cl->gpu_attention || !is_wanted(cl) || !is_fit(cl, step)) return AG_OK;
    ag_cl_plan *p = cl->plan;
    AG_TRY(send_inbox(cl, p, step));
    /* A buffer that the host has mapped is unmapped where it becomes an argument. */
    if (!p->known || atomic_load(&cl->n_mapped) || !is_of(p, step)) {
        *done = AG_REPEAT_RECORDED;
        return record(cl, step, operations, user);
    }
    const ag_status st = ag_cl_bound_launch_all(cl, &p->launches);
    if (st != AG_OK) {
        forget(cl, p);
        return st;
    }
    p->n_replayed++;
    *done = AG_REPEAT_REPLAYED;
    return AG_OK;
}
