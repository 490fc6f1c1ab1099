/* SPDX-License-Identifier: Apache-2.0 */
#include "models/liveness.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* A value that is in its place now. */
typedef struct living {
    uint16_t value;
    uint32_t first, end; /* columns */
} living;

typedef struct placing {
    ag_program *program;
    uint32_t *last; /* owned; [n_values] the last operation that reads or writes it */
    living *living; /* owned; [n_living] by column */
    size_t n_living;
} placing;

static void note_use(placing *p, const uint16_t *values, uint32_t op) {
    for (int i = 0; i < AG_OP_VALUES && values[i] != AG_NONE; i++) p->last[values[i]] = op;
}

static void find_last_uses(placing *p) {
    const ag_program *program = p->program;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        note_use(p, program->ops[i].in, i);
        note_use(p, program->ops[i].out, i);
        /* Both may run as one, whose output lies apart from what is added. */
        const uint32_t norm = ag_program_norm_of_sum(program, i);
        if (norm) p->last[program->ops[i].in[1]] = norm;
    }
    p->last[program->hidden] = UINT32_MAX; /* it is the result */
}

/* The first gap that is large enough. */
static void place(placing *p, uint16_t value) {
    ag_value *v = &p->program->values[value];
    const uint32_t cols = (v->cols + AG_VALUE_COLS - 1) / AG_VALUE_COLS * AG_VALUE_COLS;
    uint32_t first = 0;
    size_t i = 0;
    while (i < p->n_living && p->living[i].first - first < cols) first = p->living[i++].end;
    memmove(&p->living[i + 1], &p->living[i], (p->n_living - i) * sizeof *p->living);
    p->living[i] = (living){value, first, first + cols};
    p->n_living++;
    v->offset = first;
    if (first + cols > p->program->cols) p->program->cols = first + cols;
}

static void place_new(placing *p, const uint16_t *values) {
    for (int i = 0; i < AG_OP_VALUES && values[i] != AG_NONE; i++) {
        const bool is_placed = p->program->values[values[i]].offset != UINT32_MAX;
        if (!is_placed && values[i] != p->program->logits) place(p, values[i]);
    }
}

static void release(placing *p, uint32_t op) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_living; i++) {
        if (p->last[p->living[i].value] > op) p->living[n++] = p->living[i];
    }
    p->n_living = n;
}

/* Values that are in their places when operation `cut` begins. */
static void list_live(placing *p) {
    ag_program *program = p->program;
    program->n_live = 0;
    for (size_t i = 0; i < p->n_living; i++) program->live[program->n_live++] = p->living[i].value;
}

static void place_all(placing *p) {
    ag_program *program = p->program;
    find_last_uses(p);
    for (uint32_t i = 0; i < program->n_values; i++) program->values[i].offset = UINT32_MAX;
    program->cols = 0;
    place(p, program->stream);
    for (uint32_t l = 0; program->layer_inputs && l < program->n_layers; l++)
        place(p, program->layer_inputs[l]);
    for (uint32_t i = 0; i < program->n_ops; i++) {
        if (i == program->cut) list_live(p);
        place_new(p, program->ops[i].out);
        release(p, i);
    }
}

ag_status ag_place_values(ag_program *program, ag_error *err) {
    placing p = {.program = program,
                 .last = ag_calloc(program->n_values + (size_t)1, sizeof *p.last),
                 .living = ag_calloc(program->n_values + (size_t)1, sizeof *p.living)};
    program->live = ag_calloc(program->n_values + (size_t)1, sizeof *program->live);
    const ag_status st = p.last && p.living && program->live
                             ? AG_OK
                             : AG_FAIL(err, NOMEM, "offsets of %u values", program->n_values);
    if (st == AG_OK) place_all(&p);
    ag_free(p.last);
    ag_free(p.living);
    return st;
}
