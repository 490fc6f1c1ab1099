/* SPDX-License-Identifier: Apache-2.0 */
#include <antigravity/tensor.h>
#include <stdio.h>

ag_shape ag_shape_1d(size_t a) { return (ag_shape){.dim = {a}, .n_dims = 1}; }

ag_shape ag_shape_2d(size_t a, size_t b) { return (ag_shape){.dim = {a, b}, .n_dims = 2}; }

ag_shape ag_shape_3d(size_t a, size_t b, size_t c) {
    return (ag_shape){.dim = {a, b, c}, .n_dims = 3};
}

ag_shape ag_shape_4d(size_t a, size_t b, size_t c, size_t d) {
    return (ag_shape){.dim = {a, b, c, d}, .n_dims = 4};
}

/* Returns the product of n dims, 0 if one is 0, or SIZE_MAX on overflow. */
static size_t product(const size_t *dim, int n) {
    size_t p = 1;
    for (int i = 0; i < n; i++) {
        if (dim[i] == 0) return 0;
    }
    for (int i = 0; i < n; i++) {
        if (p > SIZE_MAX / dim[i]) return SIZE_MAX;
        p *= dim[i];
    }
    return p;
}

size_t ag_shape_numel(const ag_shape *s) { return s->n_dims > 0 ? product(s->dim, s->n_dims) : 0; }

size_t ag_shape_rows(const ag_shape *s) {
    return s->n_dims > 0 ? product(s->dim, s->n_dims - 1) : 0;
}

size_t ag_shape_cols(const ag_shape *s) { return s->n_dims > 0 ? s->dim[s->n_dims - 1] : 0; }

bool ag_shape_equal(const ag_shape *a, const ag_shape *b) {
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

const char *ag_shape_format(const ag_shape *s, char *buf, size_t cap) {
    /* Up to four numbers of 20 digits, with commas and brackets. */
    char text[4 * 21 + 3] = "[";
    size_t n = 1;
    for (int i = 0; i < s->n_dims; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%zu", i ? "," : "", s->dim[i]);
    }
    snprintf(text + n, sizeof text - n, "]");
    if (cap > 0) snprintf(buf, cap, "%s", text);
    return buf;
}
