/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/out_model.h"

#include "core/alloc.h"

#include <stdio.h>
#include <string.h>

ag_out_tensor *ag_out_add(ag_out_model *m, const char *name) {
    if (AG_GROW(m->tensors, &m->cap, m->n + 1, NULL) != AG_OK) return NULL;
    ag_out_tensor *t = &m->tensors[m->n++];
    *t = (ag_out_tensor){.factor = 1};
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

bool ag_out_add_section(ag_out_tensor *t, const ag_out_section *section) {
    if (AG_GROW(t->sections, &t->cap_sections, t->n_sections + 1, NULL) != AG_OK) return false;
    t->sections[t->n_sections++] = *section;
    return true;
}

ag_out_tensor *ag_out_find(const ag_out_model *m, const char *name) {
    /* Callers usually ask for the newest tensor. */
    for (size_t i = m->n; i-- > 0;) {
        if (!strcmp(m->tensors[i].name, name)) return &m->tensors[i];
    }
    return NULL;
}

void ag_out_model_free(ag_out_model *m) {
    for (size_t i = 0; i < m->n; i++) {
        ag_free(m->tensors[i].values);
        ag_free(m->tensors[i].sections);
    }
    ag_free(m->tensors);
    ag_gguf_writer_close(&m->writer);
    *m = (ag_out_model){.n = 0};
}

ag_dtype ag_out_source_type(const ag_out_tensor *t) {
    if (!t->n_sections) return AG_F32;
    return t->sections[0].exponents ? AG_MXFP4 : t->sections[0].source->dtype;
}
