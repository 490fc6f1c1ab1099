/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the operations of a forward pass, of model files or of a loaded model. */
#include "core/fail.h"
#include "models/lower.h"
#include "models/model_impl.h"

enum { LINE = 512 };

/* Calls fn for operation number i. types: the types of its weights. */
static void list_op(const ag_program *p, uint32_t i, const ag_dtype types[AG_OP_VALUES],
                    ag_op_fn fn, void *user) {
    const ag_op *op = &p->ops[i];
    char line[LINE];
    const ag_op_info info = {
        .code = ag_op_code_name((ag_op_code)op->code),
        .layer = op->layer == AG_NONE ? -1 : op->layer,
        .text = line,
    };
    (void)ag_program_line(p, i, types, line, sizeof line);
    fn(user, &info);
}

void ag_model_list_ops(const ag_model *m, ag_op_fn fn, void *user) {
    const ag_program *p = m->program;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        ag_dtype types[AG_OP_VALUES];
        for (int k = 0; k < AG_OP_VALUES && p->ops[i].w[k] != AG_NONE; k++)
            types[k] = m->bound[p->ops[i].w[k]].tensor->dtype;
        list_op(p, i, types, fn, user);
    }
}

/* ---- of files ---- */

typedef struct inspected {
    ag_model_params params;
    ag_weight_source *source; /* owned */
    ag_model_spec spec;
    ag_weights_summary summary;
    ag_program *program; /* owned */
} inspected;

static ag_status find_head_type(const inspected *m, ag_dtype *type, ag_error *err) {
    const ag_weight_spec head = ag_lm_head_weight(&m->spec);
    const ag_source_tensor *t = m->summary.embedding;
    if (!m->summary.tied) AG_TRY(ag_model_weights_find(m->source, &head, &t, err));
    *type = ag_weight_type(&head, t->dtype, &m->params);
    return AG_OK;
}

/* Finds the type of a weight after loading. All weights but matrices are F32. */
static ag_status find_type(const inspected *m, ag_weight_ref ref, ag_dtype *type, ag_error *err) {
    const ag_model_spec *s = &m->spec;
    const bool is_last = ref.layer == AG_MODEL_WEIGHT;
    *type = AG_F32;
    if (is_last) return ref.tensor == AG_MODEL_HEAD ? find_head_type(m, type, err) : AG_OK;
    for (size_t i = 0; i < ag_layer_weight_count(s, ref.layer); i++) {
        const ag_weight_spec w = ag_layer_weight(s, ref.layer, i);
        const ag_source_tensor *t;
        if (w.tensor != ref.tensor || w.kind != AG_WEIGHT_MATRIX) continue;
        AG_TRY(ag_model_weights_find(m->source, &w, &t, err));
        *type = ag_weight_type(&w, ag_weight_file_type(&w, t), &m->params);
        break;
    }
    return AG_OK;
}

static ag_status list_inspected(const inspected *m, ag_op_fn fn, void *user, ag_error *err) {
    const ag_program *p = m->program;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        ag_dtype types[AG_OP_VALUES];
        for (int k = 0; k < AG_OP_VALUES && p->ops[i].w[k] != AG_NONE; k++)
            AG_TRY(find_type(m, p->weights[p->ops[i].w[k]], &types[k], err));
        list_op(p, i, types, fn, user);
    }
    return AG_OK;
}

ag_status ag_model_inspect_ops(const char *path, const ag_model_params *params, ag_op_fn fn,
                               void *user, ag_error *err) {
    inspected m = {0};
    ag_model_info unused;
    ag_status st =
        ag_model_open(NULL, path, params, &m.params, &m.source, &m.spec, &m.summary, &unused, err);
    if (st == AG_OK) st = ag_lower(&m.spec, &m.program, err);
    if (st == AG_OK) st = list_inspected(&m, fn, user, err);
    ag_program_destroy(m.program);
    ag_source_destroy(m.source);
    return st;
}
