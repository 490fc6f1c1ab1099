/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/words.h"

#define SET(name) name##__avx2
#include "backend/cpu/simd/window_scores.h"
