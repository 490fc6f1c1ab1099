/* SPDX-License-Identifier: Apache-2.0 */
/* Policies of the library: one file and one line here for each. */
#ifndef AG_CACHE_EVICTION_POLICIES_H
#define AG_CACHE_EVICTION_POLICIES_H

#include <antigravity/eviction.h>

/* In the order of help texts; "none" must be the first. */
#define AG_EVICTION_POLICIES(X) \
    X(none)                     \
    X(sliding)                  \
    X(streaming)                \
    X(turns)                    \
    X(snapkv)                   \
    X(h2o)                      \
    X(tova)                     \
    X(keydiff)                  \
    X(compactor)

#define AG_EVICTION_DECLARE(name) extern const ag_eviction_policy ag_eviction_##name;
AG_EVICTION_POLICIES(AG_EVICTION_DECLARE)
#undef AG_EVICTION_DECLARE

/* Returns query_scale of the parameters if they are those of compactor; 0: the model's scale. */
float ag_compactor_query_scale(const ag_eviction_params *p);

#endif
