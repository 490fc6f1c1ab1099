/* SPDX-License-Identifier: Apache-2.0 */
/* Backends of this build and their devices, as `devices` and `doctor` print them. */
#ifndef ANTIGRAVITY_DEVICES_H
#define ANTIGRAVITY_DEVICES_H

#include "support/json_out.h"

#include <antigravity/antigravity.h>

enum { DEVICES_MAX = 32 };

/* A backend: its devices, or the reason why it has none. */
typedef struct backend_entry {
    const char *name;
    ag_backend *backend; /* owned; NULL: the backend has a list of devices */
    ag_device_info devices[DEVICES_MAX];
    size_t n_devices;
    const char *no_devices; /* reason; NULL: there are devices */
    ag_error err;
} backend_entry;

/* Inspects the backend. Reports a failure and returns an exit code. */
int backend_entry_open(backend_entry *e, const char *name);
void backend_entry_close(backend_entry *e);

void backend_entry_print(const backend_entry *e);
json_t *backend_entry_json(const backend_entry *e);

#endif
