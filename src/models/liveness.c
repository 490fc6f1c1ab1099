/* SPDX-License-Identifier: Apache-2.0 */
#include "models/lower.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* Columns of a live value. */
typedef struct interval {
    uint16_t value;
    uint32_t first, end; /* columns [first, end) */
} interval;

typedef struct allocation {
    ag_program *program;
    uint32_t *last;      /* owned; [n_values] last operation that uses the value */
    interval *intervals; /* owned; [n_live] live values, sorted by column */
    size_t n_live;
} allocation;

static void record_use(allocation *p, const uint16_t *values, uint32_t op) {
    for (int i = 0; i < AG_OP_VALUES && values[i] != AG_NONE; i++) p->last[values[i]] = op;
}

static void find_last_uses(allocation *p) {
    const ag_program *program = p->program;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        record_use(p, program->ops[i].in, i);
        record_use(p, program->ops[i].out, i);
        /* ADD and NORM may be fused; the output must then not overlap the addend */
        const uint32_t norm = ag_program_norm_of_sum(program, i);
        if (norm) p->last[program->ops[i].in[1]] = norm;
    }
    p->last[program->hidden] = UINT32_MAX; /* the result stays live */
}

/* Assigns the first gap that is large enough. */
static void assign(allocation *p, uint16_t value) {
    ag_value *v = &p->program->values[value];
    const uint32_t cols = (v->cols + AG_VALUE_COLS - 1) / AG_VALUE_COLS * AG_VALUE_COLS;
    uint32_t first = 0;
    size_t i = 0;
    while (i < p->n_live && p->intervals[i].first - first < cols) first = p->intervals[i++].end;
    memmove(&p->intervals[i + 1], &p->intervals[i], (p->n_live - i) * sizeof *p->intervals);
    p->intervals[i] = (interval){value, first, first + cols};
    p->n_live++;
    v->offset = first;
    if (first + cols > p->program->cols) p->program->cols = first + cols;
}

static void assign_new(allocation *p, const uint16_t *values) {
    for (int i = 0; i < AG_OP_VALUES && values[i] != AG_NONE; i++) {
        const bool has_offset = p->program->values[values[i]].offset != UINT32_MAX;
        if (!has_offset && values[i] != p->program->logits) assign(p, values[i]);
    }
}

static void release(allocation *p, uint32_t op) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_live; i++) {
        if (p->last[p->intervals[i].value] > op) p->intervals[n++] = p->intervals[i];
    }
    p->n_live = n;
}

/* Lists the values that are live when operation `cut` starts. */
static void list_live(allocation *p) {
    ag_program *program = p->program;
    program->n_live = 0;
    for (size_t i = 0; i < p->n_live; i++) program->live[program->n_live++] = p->intervals[i].value;
}

static void assign_all(allocation *p) {
    ag_program *program = p->program;
    find_last_uses(p);
    for (uint32_t i = 0; i < program->n_values; i++) program->values[i].offset = UINT32_MAX;
    program->cols = 0;
    assign(p, program->stream);
    for (uint32_t l = 0; program->layer_inputs && l < program->n_layers; l++)
        assign(p, program->layer_inputs[l]);
    for (uint32_t i = 0; i < program->n_ops; i++) {
        if (i == program->cut) list_live(p);
        assign_new(p, program->ops[i].out);
        release(p, i);
    }
}

ag_status ag_assign_offsets(ag_program *program, ag_error *err) {
    allocation p = {.program = program,
                    .last = ag_calloc(program->n_values + (size_t)1, sizeof *p.last),
                    .intervals = ag_calloc(program->n_values + (size_t)1, sizeof *p.intervals)};
    program->live = ag_calloc(program->n_values + (size_t)1, sizeof *program->live);
    const ag_status st = p.last && p.intervals && program->live
                             ? AG_OK
                             : AG_FAIL(err, NOMEM, "offsets of %u values", program->n_values);
    if (st == AG_OK) assign_all(&p);
    ag_free(p.last);
    ag_free(p.intervals);
    return st;
}
