/* SPDX-License-Identifier: Apache-2.0 */
/* The policies of the library: one file each, one line here and one in policies.c. */
#ifndef AG_CACHE_EVICTION_POLICIES_H
#define AG_CACHE_EVICTION_POLICIES_H

#include <antigravity/eviction.h>

extern const ag_eviction_policy ag_eviction_none;
extern const ag_eviction_policy ag_eviction_sliding;
extern const ag_eviction_policy ag_eviction_streaming;
extern const ag_eviction_policy ag_eviction_snapkv;
extern const ag_eviction_policy ag_eviction_h2o;
extern const ag_eviction_policy ag_eviction_tova;
extern const ag_eviction_policy ag_eviction_keydiff;

#endif
