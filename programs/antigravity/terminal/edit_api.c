/* SPDX-License-Identifier: Apache-2.0 */
#include "edit_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void *open_edit(void) {
    static const char *const names[] = {"libedit.so.2", "libedit.so.0", "libedit.so"};
    const char *path = getenv("AG_EDIT_LIBRARY");
    if (path) return path[0] ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

bool edit_api_load(edit_api *api) {
    *api = (edit_api){.library = open_edit()};
    if (!api->library) return false;
    bool complete = true;
    /* POSIX allows a function pointer in a void pointer, C does not: copies its bytes. */
#define EDIT_FIND(name)                           \
    {                                             \
        void *p = dlsym(api->library, #name);     \
        memcpy(&api->name, &p, sizeof api->name); \
        complete = complete && p;                 \
    }
    EDIT_FUNCTIONS(EDIT_FIND)
#undef EDIT_FIND
    return complete;
}
