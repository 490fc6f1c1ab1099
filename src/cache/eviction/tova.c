/* SPDX-License-Identifier: Apache-2.0 */
/* What the newest query attends to least leaves, the same slots in all heads of a layer.
 * Source: TOVA, arXiv:2401.06104. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

const ag_eviction_policy ag_eviction_tova = {
    .name = "tova",
    .importance = AG_IMPORTANCE_NEWEST,
    .select = ag_select_best,
};
