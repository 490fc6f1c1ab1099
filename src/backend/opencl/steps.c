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

static bool is_of(const ag_cl_step_entry *e, const ag_step *step) {
    return e->used && e->program == step->program && e->logits == step->logits->buffer &&
           e->logits_at == step->logits->offset && e->blocks == step->seqs[0].kv.blocks;
}

/* Assigns the least recently used entry to the step's session. */
static ag_cl_step_entry *claim(ag_cl_backend *cl, const ag_step *step) {
    ag_cl_steps *c = cl->steps;
    size_t oldest = 0;
    for (size_t i = 1; i < AG_CL_STEP_ENTRIES; i++) {
        if (c->entries[i].used < c->entries[oldest].used) oldest = i;
    }
    ag_cl_step_entry *e = &c->entries[oldest];
    release(e);
    e->program = step->program;
    e->logits = step->logits->buffer;
    e->logits_at = step->logits->offset;
    e->blocks = step->seqs[0].kv.blocks;
    ag_cl_buffer *logits = ag_cl_buffer_of(cl, e->logits);
    if (logits) logits->named_by |= UINT32_C(1) << oldest;
    return e;
}

/* Returns the entry of the step's session, NULL if there is none. */
static ag_cl_step_entry *find(ag_cl_steps *c, const ag_step *step) {
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES; i++) {
        if (is_of(&c->entries[i], step)) return &c->entries[i];
    }
    return NULL;
}

ag_status ag_cl_run_program(ag_backend *b, const ag_step *step, bool *taken) {
    ag_cl_backend *cl = ag_cl_of(b);
    *taken = false;
    if (!ag_cl_token_allowed(cl, step)) return AG_OK;
    if (!cl->steps) cl->steps = ag_calloc(1, sizeof *cl->steps);
    if (!cl->steps) return AG_FAIL(&b->err, NOMEM, "single-launch step");
    ag_cl_steps_sweep(cl);
    ag_cl_step_entry *e = find(cl->steps, step);
    if (!e) {
        ag_cl_token_shape shape;
        if (!ag_cl_token_fits(cl, step, &shape)) return AG_OK;
        e = claim(cl, step);
        e->token.shape = shape;
    }
    if (step->seqs[0].device_scores && e->token.shape.has_windows) return AG_OK;
    e->used = ++cl->steps->clock;
    const ag_status st = ag_cl_token_step(cl, &e->token, step, taken);
    if (!*taken) release(e);
    return st;
}

void ag_cl_steps_close(ag_cl_backend *cl) {
    if (!cl->steps) return;
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES; i++) release(&cl->steps->entries[i]);
    ag_free(cl->steps);
    cl->steps = NULL;
}
