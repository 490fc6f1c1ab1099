/* SPDX-License-Identifier: Apache-2.0 */
/* The input is a config.json and, after a NUL, a generation_config.json. What is accepted must be
 * in range and give finite rotary frequencies. */
#include "fuzz.h"

#include "models/rope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check(const ag_llama_config *c) {
    if (!c->vocab_size || !c->hidden_size || !c->intermediate_size || !c->n_layers) abort();
    if (!c->n_kv_heads || c->n_heads % c->n_kv_heads || !c->head_dim || c->head_dim % 2) abort();
    if ((uint64_t)c->n_heads * c->head_dim > 1 << 20 || !c->max_position_embeddings) abort();
    if (!(c->rms_norm_eps > 0) || c->n_eos > AG_MAX_EOS) abort();
    if (c->bos_id < -1 || c->bos_id >= (int64_t)c->vocab_size) abort();
    for (size_t i = 0; i < c->n_eos; i++) {
        if (c->eos_ids[i] < 0 || c->eos_ids[i] >= (int64_t)c->vocab_size) abort();
    }
    float *inv_freq = malloc(c->head_dim / 2 * sizeof *inv_freq);
    if (!inv_freq) abort();
    ag_rope_inv_freq(c, inv_freq);
    for (uint32_t i = 0; i < c->head_dim / 2; i++) {
        if (!isfinite(inv_freq[i]) || inv_freq[i] < 0) abort();
    }
    free(inv_freq);
}

static char *exact_copy(const uint8_t *data, size_t n) {
    char *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, data, n);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
    size_t n_config = nul ? (size_t)(nul - data) : n;
    size_t n_more = nul ? n - n_config - 1 : 0;
    char *text = exact_copy(data, n_config), *more = exact_copy(data + n - n_more, n_more);
    ag_config_text config = {text, n_config, "config"}, generation = {more, n_more, "generation"};
    ag_llama_config c;
    ag_error err;
    if (ag_llama_config_parse(&config, nul ? &generation : NULL, &c, &err) == AG_OK) check(&c);
    free(text);
    free(more);
    return 0;
}
