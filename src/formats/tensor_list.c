/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/tensor_list.h"

#include "core/alloc.h"

#include <stdlib.h>

void ag_tensor_list_free(ag_tensor_list *l) {
    ag_free(l->tensors);
    ag_free(l->names);
    *l = (ag_tensor_list){0};
}

static int by_offset(const void *a, const void *b) {
    const ag_source_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

void ag_tensor_list_sort(ag_tensor_list *l) {
    if (l->n > 0) qsort(l->tensors, l->n, sizeof l->tensors[0], by_offset);
}
