/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/words.h"

#include "backend/cpu/simd/window_scores.h"
