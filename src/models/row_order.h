/* SPDX-License-Identifier: Apache-2.0 */
/* Row order: maps rows of a weight to rows of a file's tensor. Some files have several weights in
 * one tensor, or the rows of a head in another order. */
#ifndef AG_MODELS_ROW_ORDER_H
#define AG_MODELS_ROW_ORDER_H

#include <stdbool.h>
#include <stddef.h>

/* Row number (i * count[1] + j) * count[2] + k of the weight is row
 * first + i * stride[0] + j * stride[1] + k * stride[2] of the file's tensor. */
typedef struct ag_row_order {
    size_t file_rows; /* rows of the file's tensor; 0: the weight is the entire tensor, other
                         members unset */
    size_t first;
    size_t count[3], stride[3];
} ag_row_order;

static inline size_t ag_row_order_at(const ag_row_order *o, size_t row) {
    if (!o->file_rows) return row;
    const size_t k = row % o->count[2], j = row / o->count[2] % o->count[1];
    const size_t i = row / o->count[2] / o->count[1];
    return o->first + i * o->stride[0] + j * o->stride[1] + k * o->stride[2];
}

/* Returns the order of n adjacent rows from `first` on. */
static inline ag_row_order ag_row_order_range(size_t file_rows, size_t first, size_t n) {
    return (ag_row_order){file_rows, first, {1, 1, n}, {n, n, 1}};
}

static inline bool ag_row_order_is_range(const ag_row_order *o) {
    return !o->file_rows || (o->count[0] == 1 && o->count[1] == 1 && o->stride[2] == 1);
}

#endif
