/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels written on vectors of any width. */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/vec.h"

#include "backend/cpu/simd/activations.h"
#include "backend/cpu/simd/key_scores.h"
#include "backend/cpu/simd/kv_rows.h"
#include "backend/cpu/simd/recurrence.h"
#include "backend/cpu/simd/rows_times.h"
