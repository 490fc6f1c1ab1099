/* SPDX-License-Identifier: Apache-2.0 */
/* TOVA: evicts what the newest query attends to least, the same slots in all heads of a layer.
 * Source: arXiv:2401.06104. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

const ag_eviction_policy ag_eviction_tova = {
    .name = "tova",
    .importance = AG_IMPORTANCE_NEWEST,
    .select = ag_select_best,
};
