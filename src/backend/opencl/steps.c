/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/steps.h"
#include "core/alloc.h"
#include "core/fail.h"

_Static_assert(2 * AG_CL_STEP_ENTRIES < 64, "a bit for each");

static void release(ag_cl_backend *cl, ag_cl_step_entry *e) {
    ag_cl_recording_release(cl, &e->recording);
    ag_cl_token_release_store(&e->token);
    *e = (ag_cl_step_entry){0};
}

void ag_cl_steps_sweep(ag_cl_backend *cl) {
    ag_cl_steps *c = cl->steps;
    const uint64_t lost = atomic_exchange(&cl->lost, 0);
    if (!lost || !c) return;
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES; i++) {
        if (lost & ag_cl_key_bit(i)) release(cl, &c->entries[i]);
        else if (lost & ag_cl_recording_bit(i))
            ag_cl_recording_release(cl, &c->entries[i].recording);
    }
    if (lost & AG_CL_CHOICE_BIT) ag_cl_launch_list_release(cl, &c->choice);
}

static ag_cl_steps *make_steps(ag_cl_backend *cl) {
    if (!cl->steps) cl->steps = ag_calloc(1, sizeof *cl->steps);
    if (cl->steps) ag_cl_steps_sweep(cl);
    return cl->steps;
}

static bool is_of(const ag_cl_step_entry *e, const ag_decode_step *step) {
    return e->used && e->model == step->layers && e->logits == step->logits->buffer &&
           e->logits_at == step->logits->offset && e->blocks == step->kv[0].blocks;
}

static void name(ag_cl_backend *cl, ag_buffer *buf, uint64_t bit) {
    ag_cl_buffer *b = ag_cl_buffer_of(cl, buf);
    if (b) b->named_by |= bit;
}

/* The entry that was used longest ago becomes the step's. */
static ag_cl_step_entry *claim(ag_cl_backend *cl, const ag_decode_step *step) {
    ag_cl_steps *c = cl->steps;
    size_t oldest = 0;
    for (size_t i = 1; i < AG_CL_STEP_ENTRIES; i++) {
        if (c->entries[i].used < c->entries[oldest].used) oldest = i;
    }
    ag_cl_step_entry *e = &c->entries[oldest];
    release(cl, e);
    e->model = step->layers;
    e->logits = step->logits->buffer;
    e->logits_at = step->logits->offset;
    e->blocks = step->kv[0].blocks;
    e->recording.launches.bit = ag_cl_recording_bit(oldest);
    name(cl, e->logits, ag_cl_key_bit(oldest));
    return e;
}

/* The step's entry, perhaps an empty one; NULL without memory. */
static ag_cl_step_entry *entry_of(ag_cl_backend *cl, const ag_decode_step *step) {
    ag_cl_steps *c = make_steps(cl);
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

ag_status ag_cl_repeat_step(ag_backend *b, const ag_decode_step *step, ag_operations_fn operations,
                            void *user, ag_repeat *done) {
    ag_cl_backend *cl = ag_cl_of(b);
    if (!cl->gpu_attention || cl->switches.recording == AG_CL_OFF || !step->n_layers) return AG_OK;
    if (!ag_cl_buffer_of(cl, step->rows->buffer)) return AG_OK;
    ag_cl_step_entry *entry = entry_of(cl, step);
    return entry ? ag_cl_recording_step(cl, &entry->recording, step, operations, user, done)
                 : AG_OK;
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

ag_cl_launch_list *ag_cl_step_choice(ag_cl_backend *cl) {
    ag_cl_steps *c = cl->switches.recording != AG_CL_OFF ? make_steps(cl) : NULL;
    if (!c) return NULL;
    c->choice.bit = AG_CL_CHOICE_BIT;
    return &c->choice;
}

void ag_cl_steps_close(ag_cl_backend *cl) {
    if (!cl->steps) return;
    for (size_t i = 0; i < AG_CL_STEP_ENTRIES; i++) release(cl, &cl->steps->entries[i]);
    ag_cl_launch_list_release(cl, &cl->steps->choice);
    ag_free(cl->steps);
    cl->steps = NULL;
}
