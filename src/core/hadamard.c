/* SPDX-License-Identifier: Apache-2.0 */
#include "core/hadamard.h"

#include "core/backend_compose.h"
#include "core/fail.h"

#include <math.h>

static void transform(float *x, size_t n, float scale) {
    for (size_t half = 1; half < n; half *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * half) {
            for (size_t i = begin; i < begin + half; i++) {
                float a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
        }
    }
    for (size_t i = 0; i < n; i++) x[i] *= scale;
}

size_t ag_hadamard_piece(size_t dim) {
    enum { LONGEST = 64 };
    size_t piece = 1;
    while (piece < LONGEST && dim % (2 * piece) == 0) piece *= 2;
    return piece;
}

void ag_hadamard(float *x, size_t n, size_t dim) {
    const size_t piece = ag_hadamard_piece(dim);
    float scale = 1 / sqrtf((float)piece);
    for (size_t i = 0; i < n * dim; i += piece) transform(x + i, piece, scale);
}

ag_status ag_kv_hadamard(ag_backend *be, ag_tensor *x, ag_error *err) {
    if (be->ops->hadamard) return ag_take_error(be, be->ops->hadamard(be, x), err);
    ag_host_view view = {0};
    AG_TRY(ag_take_error(be, ag_sync(be), err));
    AG_TRY(ag_take_error(be, ag_host_view_open(be, &view, x), err));
    ag_hadamard(view.data, ag_shape_rows(&x->shape), ag_shape_cols(&x->shape));
    return ag_take_error(be, ag_host_view_close(be, &view, x, true), err);
}
