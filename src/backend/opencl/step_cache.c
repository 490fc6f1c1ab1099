/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/step_cache.h"
#include "core/alloc.h"

_Static_assert(2 * AG_CL_STEP_ENTRIES < 64, "a bit for each");

static void release(ag_cl_backend *cl, ag_cl_step_entry *e) {
    ag_cl_plan_release(cl, &e->plan);
    ag_cl_token_release_store(&e->token);
    *e = (ag_cl_step_entry){0};
}

void ag_cl_step_cache_sweep(ag_cl_backend *cl) {
    ag_cl_step_cache *c = cl->steps;
    const uint64_t lost = atomic_exchange(&cl->lost, 0);
    if (!lost || !c) return;
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES; i++) {
        if (lost & ag_cl_key_bit(i)) release(cl, &c->entries[i]);
        else if (lost & ag_cl_recording_bit(i)) ag_cl_plan_release(cl, &c->entries[i].plan);
    }
    if (lost & AG_CL_CHOICE_BIT) ag_cl_bound_release(cl, &c->choice);
}

static ag_cl_step_cache *make(ag_cl_backend *cl) {
    if (!cl->steps) cl->steps = ag_calloc(1, sizeof *cl->steps);
    if (cl->steps) ag_cl_step_cache_sweep(cl);
    return cl->steps;
}

static bool is_of(const ag_cl_step_entry *e, const ag_decode_step *step) {
    const ag_kv_block *first = &step->kv[0].blocks[0];
    return e->used && e->model == step->layers && e->logits == step->logits->buffer &&
           e->logits_at == step->logits->offset && e->cache == first->buffer &&
           e->cache_at == first->offset;
}

static void name(ag_cl_backend *cl, ag_buffer *buf, uint64_t bit) {
    ag_cl_buffer *b = ag_cl_buffer_of(cl, buf);
    if (b) b->named_by |= bit;
}

/* The entry that was used longest ago becomes the step's. */
static ag_cl_step_entry *claim(ag_cl_backend *cl, const ag_decode_step *step) {
    ag_cl_step_cache *c = cl->steps;
    const ag_kv_block *first = &step->kv[0].blocks[0];
    size_t oldest = 0;
    for (size_t i = 1; i < AG_CL_STEP_ENTRIES; i++) {
        if (c->entries[i].used < c->entries[oldest].used) oldest = i;
    }
    ag_cl_step_entry *e = &c->entries[oldest];
    release(cl, e);
    e->model = step->layers;
    e->logits = step->logits->buffer;
    e->logits_at = step->logits->offset;
    e->cache = first->buffer;
    e->cache_at = first->offset;
    e->plan.launches.bit = ag_cl_recording_bit(oldest);
    name(cl, e->logits, ag_cl_key_bit(oldest));
    name(cl, e->cache, ag_cl_key_bit(oldest));
    return e;
}

ag_cl_step_entry *ag_cl_step_entry_of(ag_cl_backend *cl, const ag_decode_step *step) {
    ag_cl_step_cache *c = make(cl);
    if (!c) return NULL;
    ag_cl_step_entry *e = NULL;
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES && !e; i++) {
        if (is_of(&c->entries[i], step)) e = &c->entries[i];
    }
    if (!e) e = claim(cl, step);
    e->used = ++c->clock;
    c->newest = e;
    return e;
}

ag_cl_bound *ag_cl_step_choice(ag_cl_backend *cl) {
    ag_cl_step_cache *c = cl->switches.plan != AG_CL_OFF ? make(cl) : NULL;
    if (!c) return NULL;
    c->choice.bit = AG_CL_CHOICE_BIT;
    return &c->choice;
}

void ag_cl_step_cache_close(ag_cl_backend *cl) {
    if (!cl->steps) return;
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES; i++) release(cl, &cl->steps->entries[i]);
    ag_cl_bound_release(cl, &cl->steps->choice);
    ag_free(cl->steps);
    cl->steps = NULL;
}
