/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/recording.h"
#include "backend/opencl/staging.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16 };

/* ---- memory ---- */

static void release_memory(ag_cl_recording *p) {
    ag_free(p->layers);
    ag_free(p->places);
    ag_free(p->blocks);
    ag_free(p->sent);
    ag_free(p->mailbox);
    ag_buffer_release(&p->tables);
    p->layers = NULL;
    p->places = NULL;
    p->blocks = NULL;
    p->sent = NULL;
    p->mailbox = NULL;
    p->mailbox_bytes = 0;
    p->known = false;
}

void ag_cl_recording_release(ag_cl_backend *cl, ag_cl_recording *p) {
    const uint64_t bit = p->launches.bit;
    ag_cl_launch_list_release(cl, &p->launches);
    release_memory(p);
    *p = (ag_cl_recording){.launches.bit = bit};
}

static size_t reserve_bytes(size_t *end, size_t bytes) {
    const size_t here = *end;
    *end = (here + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

static size_t inv_freq_bytes(const ag_decode_layer *l) {
    return l->inv_freq ? ag_tensor_bytes(l->inv_freq) : 0;
}

/* An earlier layer with the same frequencies; the layer itself if there is none. */
static uint32_t first_with_frequencies(const ag_decode_step *step, uint32_t layer) {
    uint32_t l = 0;
    while (step->layers[l].inv_freq != step->layers[layer].inv_freq) l++;
    return l;
}

static size_t slots_of(const ag_kv_view *kv) { return kv->n_kv_heads * sizeof(uint32_t); }

/* The mailbox of a step; its size. */
static size_t layout_mailbox(ag_cl_recording *p, const ag_decode_step *step) {
    size_t end = 0;
    p->slots_bytes = 0;
    (void)reserve_bytes(&end, ag_shape_cols(&step->rows->shape) * sizeof(float));
    p->position_at = reserve_bytes(&end, sizeof step->position);
    for (uint32_t l = 0; l < step->n_layers; l++) {
        const uint32_t same = first_with_frequencies(step, l);
        ag_cl_recorded_places *at = &p->places[l];
        at->inv_freq_at = same < l ? p->places[same].inv_freq_at
                                   : reserve_bytes(&end, inv_freq_bytes(&step->layers[l]));
        at->visible_from_at =
            step->layers[l].window ? reserve_bytes(&end, sizeof step->position) : 0;
        at->slots_at = p->slots_bytes;
        p->slots_bytes += slots_of(&step->kv[l]);
    }
    p->before_at = reserve_bytes(&end, p->slots_bytes);
    p->after_at = reserve_bytes(&end, p->slots_bytes);
    p->scored_at = reserve_bytes(&end, p->slots_bytes);
    return end;
}

static uint32_t end_block(const ag_kv_view *kv) {
    return ag_kv_view_most_slots(kv) / AG_KV_BLOCK + 1;
}

static uint32_t first_block(const ag_kv_view *kv) {
    uint32_t least = kv->n_slots[0];
    for (uint32_t h = 1; h < kv->n_kv_heads; h++) {
        if (kv->n_slots[h] < least) least = kv->n_slots[h];
    }
    return least / AG_KV_BLOCK;
}

static uint32_t all_heads(const ag_decode_step *step) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < step->n_layers; l++) n += step->kv[l].n_kv_heads;
    return n;
}

/* Memory for the step's key and mailbox; false if there is none, on the host or behind the row. */
static bool reserve_mailbox(ag_cl_backend *cl, ag_cl_recording *p, const ag_decode_step *step) {
    const uint32_t n_blocks = ag_step_most_slots(step) / AG_KV_BLOCK + 1, n_heads = all_heads(step);
    if (!p->layers || p->n_layers != step->n_layers || p->n_heads != n_heads ||
        p->max_blocks < n_blocks) {
        release_memory(p);
        p->n_layers = step->n_layers;
        p->n_heads = n_heads;
        p->max_blocks = 2 * n_blocks; /* so that a growing cache rarely asks */
        p->layers = ag_calloc(p->n_layers, sizeof *p->layers);
        p->places = ag_calloc(p->n_layers, sizeof *p->places);
        p->blocks = ag_calloc((size_t)p->n_heads * p->max_blocks, sizeof *p->blocks);
        p->sent = ag_calloc((size_t)p->n_heads * p->max_blocks, sizeof *p->sent);
        (void)ag_memory_alloc(&cl->memory->base, p->n_heads * p->max_blocks * sizeof *p->sent,
                              AG_USAGE_SCRATCH, &p->tables, NULL);
    }
    const size_t bytes =
        p->layers && p->places && p->blocks && p->sent && p->tables ? layout_mailbox(p, step) : 0;
    if (bytes && p->mailbox && p->mailbox_bytes == bytes)
        return bytes <= ag_tensor_bytes(step->rows);
    ag_free(p->mailbox);
    p->mailbox = bytes && bytes <= ag_tensor_bytes(step->rows) ? ag_calloc(1, bytes) : NULL;
    p->mailbox_bytes = bytes;
    p->known = false;
    if (p->mailbox) return true;
    release_memory(p);
    return false;
}

/* ---- the key ---- */

static ag_cl_recorded_layer layer_of(const ag_kv_view *kv) {
    return (ag_cl_recorded_layer){
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

static bool same_layer(const ag_cl_recorded_layer *a, const ag_cl_recorded_layer *b) {
    return a->k_type == b->k_type && a->v_type == b->v_type && a->n_kv_heads == b->n_kv_heads &&
           a->head_dim == b->head_dim && a->v_offset == b->v_offset && a->p_offset == b->p_offset &&
           a->first == b->first && a->end == b->end;
}

/* known: [heads][max_blocks] of the layer, of which the first n are compared. */
static bool same_blocks(const ag_kv_block *known, uint32_t max_blocks, const ag_kv_view *kv,
                        uint32_t n) {
    for (uint32_t h = 0; h < kv->n_kv_heads; h++, known += max_blocks) {
        const ag_kv_block *now = ag_kv_view_block(kv, h, 0);
        for (uint32_t i = 0; i < n; i++) {
            if (known[i].buffer != now[i].buffer || known[i].offset != now[i].offset) return false;
        }
    }
    return true;
}

static bool is_of(const ag_cl_recording *p, const ag_decode_step *step) {
    if (p->model != step->layers || p->hadamard != step->hadamard ||
        p->query_periods != step->query_periods || p->rows != step->rows->buffer ||
        p->rows_at != step->rows->offset || p->logits != step->logits->buffer ||
        p->logits_at != step->logits->offset || p->device_scores != step->device_scores ||
        p->score_row0 != step->score_row0) {
        return false;
    }
    const ag_kv_block *blocks = p->blocks;
    for (uint32_t l = 0; l < step->n_layers; l++) {
        const ag_cl_recorded_layer now = layer_of(&step->kv[l]);
        if (!same_layer(&p->layers[l], &now)) return false;
        if (!same_blocks(blocks, p->max_blocks, &step->kv[l], now.end)) return false;
        blocks += (size_t)now.n_kv_heads * p->max_blocks;
    }
    return true;
}

static void set_key(ag_cl_recording *p, const ag_decode_step *step) {
    p->model = step->layers;
    p->hadamard = step->hadamard;
    p->query_periods = step->query_periods;
    p->rows = step->rows->buffer;
    p->rows_at = step->rows->offset;
    p->logits = step->logits->buffer;
    p->logits_at = step->logits->offset;
    p->device_scores = step->device_scores;
    p->score_row0 = step->score_row0;
    ag_kv_block *blocks = p->blocks;
    for (uint32_t l = 0; l < step->n_layers; l++) {
        const ag_kv_view *kv = &step->kv[l];
        p->layers[l] = layer_of(kv);
        for (uint32_t h = 0; h < kv->n_kv_heads; h++, blocks += p->max_blocks)
            memcpy(blocks, ag_kv_view_block(kv, h, 0), p->layers[l].end * sizeof *blocks);
    }
}

/* ---- the mailbox ---- */

static uint32_t *words(const ag_cl_recording *p, size_t at) {
    return (uint32_t *)(void *)(p->mailbox + at);
}

static void write_layer(ag_cl_recording *p, const ag_decode_step *step, uint32_t layer) {
    const ag_decode_layer *l = &step->layers[layer];
    const ag_cl_recorded_places *at = &p->places[layer];
    if (l->inv_freq && first_with_frequencies(step, layer) == layer) {
        memcpy(p->mailbox + at->inv_freq_at, ag_tensor_f32(l->inv_freq), inv_freq_bytes(l));
    }
    if (l->window) {
        const uint32_t end = step->position + 1;
        *words(p, at->visible_from_at) = end > l->window ? end - l->window : 0;
    }
    const ag_kv_view *kv = &step->kv[layer];
    uint32_t *before = words(p, p->before_at + at->slots_at);
    uint32_t *after = words(p, p->after_at + at->slots_at);
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        before[h] = kv->n_slots[h];
        after[h] = kv->n_slots[h] + 1;
    }
}

static ag_status send_mailbox(ag_cl_backend *cl, ag_cl_recording *p, const ag_decode_step *step) {
    memcpy(p->mailbox, step->embedding, ag_shape_cols(&step->rows->shape) * sizeof(float));
    *words(p, p->position_at) = step->position;
    for (uint32_t l = 0; l < step->n_layers; l++) write_layer(p, step, l);
    if (step->device_scores) memcpy(p->mailbox + p->scored_at, step->scored, p->slots_bytes);
    return ag_buffer_upload(step->rows->buffer, step->rows->offset, p->mailbox, p->mailbox_bytes,
                            &cl->base.err);
}

/* Where the layer's n_slots lie, as they are at this moment of the step; 0: nowhere. */
static size_t place_of_slots(const ag_cl_recording *p, uint32_t layer, const ag_kv_view *kv) {
    const size_t row = p->places[layer].slots_at, bytes = slots_of(kv);
    if (memcmp(kv->n_slots, p->mailbox + p->before_at + row, bytes) == 0) return p->before_at + row;
    if (memcmp(kv->n_slots, p->mailbox + p->after_at + row, bytes) == 0) return p->after_at + row;
    return 0;
}

/* An array is known by its address: equal values may mean different things for the next token. */
static size_t place_of(const ag_cl_recording *p, const void *data, size_t n) {
    const ag_decode_step *step = p->step;
    if (data == step->positions && n == sizeof step->position) return p->position_at;
    for (uint32_t l = 0; l < step->n_layers; l++) {
        const ag_decode_layer *layer = &step->layers[l];
        const ag_cl_recorded_places *at = &p->places[l];
        if (layer->inv_freq && data == ag_tensor_f32(layer->inv_freq) &&
            n == inv_freq_bytes(layer)) {
            return at->inv_freq_at;
        }
        if (layer->window && data == layer->visible_from && n == sizeof step->position) {
            return at->visible_from_at;
        }
        if (n != slots_of(&step->kv[l])) continue;
        if (data == step->kv[l].n_slots) return place_of_slots(p, l, &step->kv[l]);
        if (step->device_scores && data == step->scored + at->slots_at / sizeof(uint32_t)) {
            return p->scored_at + at->slots_at;
        }
    }
    return 0;
}

static bool place(void *user, const void *data, size_t n, cl_mem *mem, size_t *offset) {
    const ag_cl_recording *p = user;
    const size_t at = place_of(p, data, n);
    *mem = p->rows_mem;
    *offset = p->step->rows->offset + at;
    return at != 0;
}

/* A layer's table is the same throughout a step; tables hold zeros at first. */
static bool place_table(void *user, const ag_kv_block *of, const uint64_t *table, size_t n,
                        cl_mem *mem, size_t *offset) {
    ag_cl_recording *p = user;
    size_t at = 0;
    uint32_t l = 0;
    while (l < p->n_layers && p->step->kv[l].blocks != of)
        at += (size_t)p->layers[l++].n_kv_heads * p->max_blocks;
    if (l == p->n_layers || n > (size_t)p->layers[l].n_kv_heads * p->max_blocks) return false;
    const bool same = memcmp(p->sent + at, table, n * sizeof *table) == 0;
    if (p->layers[l].n_table && (!same || p->layers[l].n_table != n)) return false;
    *mem = ag_cl_buffer_of(p->cl, p->tables)->mem;
    *offset = at * sizeof *table;
    p->layers[l].n_table = n;
    if (same) return true;
    memcpy(p->sent + at, table, n * sizeof *table);
    if (ag_cl_stage_into(p->cl, *mem, *offset, table, n * sizeof *table, NULL) != AG_OK) {
        p->sent[at] = ~table[0]; /* to be sent again */
        return false;
    }
    p->cl->counts.tables++;
    return true;
}

/* ---- a step ---- */

static ag_status record(ag_cl_backend *cl, ag_cl_recording *p, const ag_decode_step *step,
                        ag_operations_fn operations, void *user) {
    p->known = false;
    set_key(p, step); /* the operations change what the views tell */
    p->step = step;
    p->cl = cl;
    p->rows_mem = ag_cl_buffer_of(cl, step->rows->buffer)->mem;
    cl->counts.recorded++;
    ag_cl_launch_list_record(cl, &p->launches, place, place_table, p);
    const ag_status st = operations(user);
    p->unfit = st == AG_OK && p->launches.unfit;
    p->known = ag_cl_launch_list_stop(cl, &p->launches, st == AG_OK);
    p->step = NULL;
    p->cl = NULL;
    return st;
}

ag_status ag_cl_recording_step(ag_cl_backend *cl, ag_cl_recording *p, const ag_decode_step *step,
                               ag_operations_fn operations, void *user, ag_repeat *done) {
    if (p->unfit || !reserve_mailbox(cl, p, step)) return AG_OK;
    AG_TRY(send_mailbox(cl, p, step));
    /* A buffer that the host has mapped is unmapped where it becomes an argument. */
    if (!p->known || atomic_load(&cl->n_mapped) || !is_of(p, step)) {
        *done = AG_REPEAT_RECORDED;
        return record(cl, p, step, operations, user);
    }
    const ag_status st = ag_cl_launch_list_replay(cl, &p->launches);
    if (st != AG_OK) {
        ag_cl_recording_release(cl, p);
        return st;
    }
    cl->counts.replayed++;
    *done = AG_REPEAT_REPLAYED;
    return AG_OK;
}
