/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rope.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <math.h>

static const double two_pi = 6.283185307179586;

/* Llama 3.1's rule: wavelengths that the original context holds many times stay, those longer than
 * it are divided by the factor, and between the two bounds one fades into the other. */
static float scale_llama3(float inv_freq, const ag_rope_scaling *s) {
    const double original = s->original_max_position_embeddings;
    const float low = (float)s->low_freq_factor, factor = (float)s->factor;
    /* A number divided by a tensor is the number times the reciprocal there, rounded twice. */
    float wavelength = 1 / inv_freq * (float)two_pi;
    if (wavelength < (float)(original / s->high_freq_factor)) return inv_freq;
    if (wavelength > (float)(original / s->low_freq_factor)) return inv_freq / factor;
    float smooth = (1 / wavelength * (float)original - low) /
                   (float)(s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * inv_freq / factor + smooth * inv_freq;
}

void ag_rope_inv_freq(const ag_rope_spec *rope, float *inv_freq) {
    const ag_rope_scaling *s = &rope->scaling;
    for (uint32_t i = 0; i < rope->n_rotated / 2; i++) {
        float exponent = (float)(2 * i) / (float)rope->n_rotated;
        /* pow in double rounds to the float32 power, whatever the system's powf does. */
        float f = 1 / (float)pow((float)rope->theta, exponent);
        if (s->type == AG_ROPE_LINEAR) f /= (float)s->factor;
        if (s->type == AG_ROPE_LLAMA3) f = scale_llama3(f, s);
        inv_freq[i] = f;
    }
}

ag_status ag_rope_divide(const ag_weight_source *source, const char *tensor, float *inv_freq,
                         size_t n, ag_error *err) {
    if (!ag_source_find(source, tensor)) return AG_OK;
    const ag_source_tensor *t;
    AG_TRY(ag_source_require(source, tensor, &t, err));
    const char *path = ag_source_file_path(source, t->file);
    if (t->dtype != AG_F32 || ag_shape_numel(&t->shape) != n) {
        return AG_FAIL(err, SHAPE, "%s: tensor %s is no list of %zu f32 values", path, tensor, n);
    }
    float *divisors = ag_malloc(n * sizeof *divisors);
    if (!divisors) return AG_FAIL(err, NOMEM, "tensor %s", tensor);
    ag_status st = ag_source_read(source, t, 0, divisors, n * sizeof *divisors, err);
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        if (isfinite(divisors[i]) && divisors[i] > 0) inv_freq[i] /= divisors[i];
        else {
            st = AG_FAIL(err, FORMAT, "%s: tensor %s: value %zu is %g", path, tensor, i,
                         (double)divisors[i]);
        }
    }
    ag_free(divisors);
    return st;
}
