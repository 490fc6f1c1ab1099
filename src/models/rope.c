/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rope.h"

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
