/* SPDX-License-Identifier: Apache-2.0 */
/* Function pointers to libedit, loaded at run time. */
#ifndef ANTIGRAVITY_EDIT_API_H
#define ANTIGRAVITY_EDIT_API_H

#include <histedit.h>
#include <stdbool.h>

#define EDIT_FUNCTIONS(X) \
    X(el_init)            \
    X(el_end)             \
    X(el_set)             \
    X(el_gets)            \
    X(el_source)          \
    X(el_resize)          \
    X(history_init)       \
    X(history_end)        \
    X(history)

typedef struct edit_api {
    void *library; /* stays loaded until the process ends */
#define EDIT_POINTER(name) __typeof__(name) *name;
    EDIT_FUNCTIONS(EDIT_POINTER)
#undef EDIT_POINTER
} edit_api;

/* Loads $AG_EDIT_LIBRARY if it is set ("" for none), else libedit.so.2 or libedit.so.0. Returns
 * false if there is none. */
bool edit_api_load(edit_api *api);

#endif
