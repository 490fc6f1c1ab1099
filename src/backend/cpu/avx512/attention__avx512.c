/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/words.h"

#define SET(name) name##__avx512
#include "backend/cpu/simd/window_scores.h"
