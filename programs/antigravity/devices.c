/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity devices: lists backends and their devices. */
#include "devices.h"
#include "command.h"
#include "options/options.h"
#include "terminal/output.h"

#include <antigravity/antigravity.h>
#include <inttypes.h>
#include <string.h>

int backend_entry_open(backend_entry *e, const char *name) {
    *e = (backend_entry){.name = name};
    ag_status st = ag_backend_devices(e->name, e->devices, DEVICES_MAX, &e->n_devices, &e->err);
    if (e->n_devices > DEVICES_MAX) e->n_devices = DEVICES_MAX;
    if (st == AG_OK) return EXIT_DONE;
    if (st != AG_UNSUPPORTED) {
        e->no_devices = e->err.msg;
        return EXIT_DONE;
    }
    ag_backend_params params = {.name = e->name};
    if (ag_backend_create(&params, &e->backend, &e->err) != AG_OK) return complain_error(&e->err);
    return EXIT_DONE;
}

void backend_entry_close(backend_entry *e) { ag_backend_destroy(e->backend); }

void backend_entry_print(const backend_entry *e) {
    if (e->backend) {
        printf("%-8s %s\n", e->name, ag_backend_describe(e->backend));
    } else if (e->no_devices) {
        printf("%-8s none: %s\n", e->name, e->no_devices);
    }
    for (size_t i = 0; i < e->n_devices; i++) {
        const ag_device_info *d = &e->devices[i];
        printf("%-8s %zu: %s (%s), %" PRIu32 " compute units, %" PRIu64 " MiB, %s%s%s\n", e->name,
               i, d->name, d->kind, d->n_units, d->memory_bytes >> 20, d->driver,
               *d->extensions ? ", " : "", d->extensions);
    }
}

static json_t *device_json(const ag_device_info *d) {
    return JSON_OBJECT({"name", json_text(d->name, strlen(d->name))},
                       {"kind", json_string(d->kind)},
                       {"units", json_integer((json_int_t)d->n_units)},
                       {"memory_bytes", json_integer((json_int_t)d->memory_bytes)},
                       {"driver", json_text(d->driver, strlen(d->driver))},
                       {"extensions", json_text(d->extensions, strlen(d->extensions))});
}

json_t *backend_entry_json(const backend_entry *e) {
    if (e->backend) {
        const char *text = ag_backend_describe(e->backend);
        return JSON_OBJECT({"name", json_string(e->name)},
                           {"description", json_text(text, strlen(text))},
                           {"threads", json_integer((json_int_t)ag_backend_threads(e->backend))});
    }
    json_t *devices = json_array();
    for (size_t i = 0; i < e->n_devices; i++)
        if (json_array_append_new(devices, device_json(&e->devices[i])) != 0) break;
    const char *text = e->no_devices ? e->no_devices : "the first GPU, or --device";
    return JSON_OBJECT({"name", json_string(e->name)},
                       {"description", json_text(text, strlen(text))}, {"devices", devices});
}

int command_devices(int argc, char **argv) {
    bool json = false;
    const option_def defs[] = {
        {.name = "json", .kind = OPTION_FLAG, .help = "print a list of objects"},
    };
    command_line line = {
        .usage = "devices [--json]",
        .description = "Lists the backends of this build and their devices. -b takes the names,\n"
                       "--device the numbers.",
        .examples = "  antigravity devices",
        .groups = {{"Options", defs, 1, &json}},
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    json_t *list = json_array();
    code = EXIT_DONE;
    for (size_t i = 0; ag_backend_list(i) && code == EXIT_DONE; i++) {
        backend_entry e;
        code = backend_entry_open(&e, ag_backend_list(i));
        if (code != EXIT_DONE) break;
        if (!json) backend_entry_print(&e);
        else if (json_array_append_new(list, backend_entry_json(&e)) != 0)
            code = complain_no_memory();
        backend_entry_close(&e);
    }
    if (!json || code != EXIT_DONE) json_decref(list);
    else code = json_print(list);
    return code;
}
