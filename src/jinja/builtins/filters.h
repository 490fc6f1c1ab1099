/* SPDX-License-Identifier: Apache-2.0 */
/* Filters: {{ value|filter(...) }}. */
#ifndef AG_JINJA_BUILTINS_FILTERS_H
#define AG_JINJA_BUILTINS_FILTERS_H

#include "jinja/context.h"

int ag_jfilter_find(const char *name, size_t len); /* -1: unknown */
ag_jv ag_jfilter_call(ag_jctx *c, int id, ag_jv value, const ag_jargs *args);

/* a: arguments as bound by ag_jbind() */
typedef ag_jv ag_jfilter_fn(ag_jctx *c, ag_jv value, const ag_jv *a);
ag_jfilter_fn ag_jfilter_batch, ag_jfilter_capitalize, ag_jfilter_dictsort, ag_jfilter_escape,
    ag_jfilter_first, ag_jfilter_float, ag_jfilter_groupby, ag_jfilter_indent, ag_jfilter_int,
    ag_jfilter_items, ag_jfilter_join, ag_jfilter_last, ag_jfilter_list, ag_jfilter_lower,
    ag_jfilter_max, ag_jfilter_min, ag_jfilter_replace, ag_jfilter_reverse, ag_jfilter_round,
    ag_jfilter_safe, ag_jfilter_slice, ag_jfilter_sort, ag_jfilter_string, ag_jfilter_sum,
    ag_jfilter_title, ag_jfilter_tojson, ag_jfilter_trim, ag_jfilter_truncate, ag_jfilter_unique,
    ag_jfilter_upper, ag_jfilter_wordcount;

/* Filters that take arbitrary arguments. */
typedef ag_jv ag_jfilter_any_fn(ag_jctx *c, ag_jv value, const ag_jargs *args);
ag_jfilter_any_fn ag_jfilter_format, ag_jfilter_map, ag_jfilter_select, ag_jfilter_reject,
    ag_jfilter_selectattr, ag_jfilter_rejectattr;

/* Returns strings unchanged, including markup, and str(v) for other values (soft_str of
 * markupsafe). */
ag_jstr *ag_jsoft_str(ag_jctx *c, ag_jv v);

/* tests.c: {{ value is test(...) }} */
int ag_jtest_find(const char *name, size_t len); /* -1: unknown */
ag_jv ag_jtest_call(ag_jctx *c, int id, ag_jv value, const ag_jargs *args);

#endif
