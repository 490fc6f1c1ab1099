/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rope.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <math.h>

static const double two_pi = 6.283185307179586;

/* Llama 3.1's scaling: short wavelengths stay, frequencies of long ones are divided by the factor,
 * and between the two bounds the result is interpolated. */
static float scale_llama3(float inv_freq, const ag_rope_scaling *s) {
    const double original = s->original_max_position_embeddings;
    const float low = (float)s->low_freq_factor, factor = (float)s->factor;
    /* torch divides a number by a tensor as number * reciprocal, rounded twice */
    float wavelength = 1 / inv_freq * (float)two_pi;
    if (wavelength < (float)(original / s->high_freq_factor)) return inv_freq;
    if (wavelength > (float)(original / s->low_freq_factor)) return inv_freq / factor;
    float smooth = (1 / wavelength * (float)original - low) /
                   (float)(s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * inv_freq / factor + smooth * inv_freq;
}

/* Returns the pair that rotates `turns` times within the original length. */
static double pair_of_turns(const ag_rope_spec *rope, double turns) {
    const double wavelength = rope->scaling.original_max_position_embeddings / (turns * two_pi);
    return rope->n_rotated * log(wavelength) / (2 * log(rope->theta));
}

/* YaRN (arXiv:2309.00071): pairs that rotate often within the original length stay, the others are
 * divided by the factor, and between the two bounds the result is interpolated. */
static float scale_yarn(const ag_rope_spec *rope, float wavelength, uint32_t pair) {
    const ag_rope_scaling *s = &rope->scaling;
    double low = pair_of_turns(rope, s->beta_fast), high = pair_of_turns(rope, s->beta_slow);
    if (s->round_to_pairs) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, rope->n_rotated - 1);
    if (low == high) high += 0.001;
    const float ramp = ((float)pair - (float)low) / (float)(high - low);
    float unscaled = 1 - fminf(fmaxf(ramp, 0), 1);
    if (s->ext_factor != 0) unscaled *= (float)s->ext_factor;
    return 1 / ((float)s->factor * wavelength) * (1 - unscaled) + 1 / wavelength * unscaled;
}

void ag_rope_inv_freq(const ag_rope_spec *rope, bool is_long, float *inv_freq) {
    const ag_rope_scaling *s = &rope->scaling;
    for (uint32_t i = 0; i < rope->n_rotated / 2; i++) {
        float exponent = (float)(2 * i) / (float)rope->n_rotated;
        /* pow in double rounds to the correct float32 on every system; powf may not */
        const float wavelength = (float)pow((float)rope->theta, exponent);
        float f = 1 / wavelength;
        if (s->type == AG_ROPE_PROPORTIONAL) f = 2 * i < rope->n_turned ? f / (float)s->factor : 0;
        if (s->type == AG_ROPE_LINEAR) f /= (float)s->factor;
        if (s->type == AG_ROPE_LLAMA3) f = scale_llama3(f, s);
        if (s->type == AG_ROPE_YARN) f = scale_yarn(rope, wavelength, i);
        if (rope->n_divisors) f = 1 / (rope->divisors[is_long][i] * wavelength);
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
        return AG_FAIL(err, SHAPE, "%s: tensor %s is not a list of %zu f32 values", path, tensor,
                       n);
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
