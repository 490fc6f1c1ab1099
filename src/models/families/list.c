/* SPDX-License-Identifier: Apache-2.0 */
/* List of families. Each has a file that defines ag_family_NAME. */
#include "models/families/family.h"

#define FAMILIES(X)   \
    X(llama)          \
    X(mistral)        \
    X(mixtral)        \
    X(qwen2)          \
    X(qwen2_moe)      \
    X(qwen3)          \
    X(qwen3_moe)      \
    X(gemma2)         \
    X(gemma3)         \
    X(smollm3)        \
    X(ministral3)     \
    X(granite)        \
    X(granite_moe)    \
    X(granite_hybrid) \
    X(minicpm)        \
    X(olmo2)          \
    X(olmoe)          \
    X(phi3)           \
    X(lfm2)           \
    X(lfm2_moe)       \
    X(qwen3_5)        \
    X(qwen3_5_moe)    \
    X(gemma4)         \
    X(gpt_oss)

#define DECLARE(name) extern const ag_family ag_family_##name;
FAMILIES(DECLARE)

#define ADDRESS(name) &ag_family_##name,
static const ag_family *const families[] = {FAMILIES(ADDRESS)};

const ag_family *ag_family_at(size_t i) {
    return i < sizeof families / sizeof families[0] ? families[i] : NULL;
}
