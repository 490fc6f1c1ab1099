/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/steps.h"
#include "core/alloc.h"
#include "core/fail.h"

_Static_assert(AG_CL_STEP_ENTRIES <= 32, "a bit for each");

static void release(ag_cl_step_entry *e) {
    ag_cl_token_release_store(&e->token);
    *e = (ag_cl_step_entry){0};
}

void ag_cl_steps_sweep(ag_cl_backend *cl) {
    ag_cl_steps *c = cl->steps;
    const uint32_t lost = atomic_exchange(&cl->lost, 0);
    for (size_t i = 0; lost && c && i < AG_CL_STEP_ENTRIES; i++) {
        if (lost & UINT32_C(1) << i) release(&c->entries[i]);
    }
}

static bool is_of(const ag_cl_step_entry *e, const ag_decode_step *step) {
    return e->used && e->model == step->layers && e->logits == step->logits->buffer &&
           e->logits_at == step->logits->offset && e->blocks == step->kv[0].blocks;
}

/* The entry that was used longest ago becomes the step's. */
static ag_cl_step_entry *claim(ag_cl_backend *cl, const ag_decode_step *step) {
    ag_cl_steps *c = cl->steps;
    size_t oldest = 0;
    for (size_t i = 1; i < AG_CL_STEP_ENTRIES; i++) {
        if (c->entries[i].used < c->entries[oldest].used) oldest = i;
    }
    ag_cl_step_entry *e = &c->entries[oldest];
    release(e);
    e->model = step->layers;
    e->logits = step->logits->buffer;
    e->logits_at = step->logits->offset;
    e->blocks = step->kv[0].blocks;
    ag_cl_buffer *logits = ag_cl_buffer_of(cl, e->logits);
    if (logits) logits->named_by |= UINT32_C(1) << oldest;
    return e;
}

/* The step's entry, perhaps an empty one; NULL without memory. */
static ag_cl_step_entry *entry_of(ag_cl_backend *cl, const ag_decode_step *step) {
    if (!cl->steps) cl->steps = ag_calloc(1, sizeof *cl->steps);
    ag_cl_steps *c = cl->steps;
    ag_cl_step_entry *e = NULL;
    if (!c) return NULL;
    ag_cl_steps_sweep(cl);
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES && !e; i++) {
        if (is_of(&c->entries[i], step)) e = &c->entries[i];
    }
    if (!e) e = claim(cl, step);
    e->used = ++c->clock;
    return e;
}

ag_status ag_cl_decode_step(ag_backend *b, const ag_decode_step *step, bool *taken) {
    ag_cl_backend *cl = ag_cl_of(b);
    ag_cl_token_shape shape;
    *taken = false;
    if (!ag_cl_token_wanted(cl, step, &shape)) return AG_OK;
    ag_cl_step_entry *entry = entry_of(cl, step);
    if (!entry) return AG_FAIL(&b->err, NOMEM, "a decode step");
    return ag_cl_token_step(cl, &entry->token, &shape, step, taken);
}

void ag_cl_steps_close(ag_cl_backend *cl) {
    if (!cl->steps) return;
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES; i++) release(&cl->steps->entries[i]);
    ag_free(cl->steps);
    cl->steps = NULL;
}
