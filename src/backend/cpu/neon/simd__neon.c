/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels written on vectors of any width. */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/vec.h"

#define SET(name) name##__neon
#include "backend/cpu/simd/activations.h"
#include "backend/cpu/simd/key_scores.h"
#include "backend/cpu/simd/kv_rows.h"
#include "backend/cpu/simd/recurrence.h"
#include "backend/cpu/simd/rows_times.h"
