/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels written on vectors of any width. */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/vec.h"

#define SET(name) name##__avx512
#include "backend/cpu/simd/activations.h"
#include "backend/cpu/simd/key_scores.h"
#include "backend/cpu/simd/kv_rows.h"
#include "backend/cpu/simd/recurrence.h"
#include "backend/cpu/simd/rows_times.h"
