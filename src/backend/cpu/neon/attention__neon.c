/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/words.h"

#define SET(name) name##__neon
#include "backend/cpu/simd/window_scores.h"
