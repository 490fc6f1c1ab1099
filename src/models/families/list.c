/* SPDX-License-Identifier: Apache-2.0 */
/* The families that are known, one line each. */
#include "models/families/family.h"

static const ag_family *const families[] = {
    &ag_family_llama, &ag_family_mistral, &ag_family_qwen2,
    &ag_family_qwen3, &ag_family_gemma2,  &ag_family_gemma3,
};

const ag_family *ag_family_at(size_t i) {
    return i < sizeof families / sizeof families[0] ? families[i] : NULL;
}
