/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity devices: what models can run on here. */
#include "command.h"
#include "json_out.h"
#include "options.h"
#include "output.h"

#include <antigravity/antigravity.h>
#include <string.h>

static json_t *describe(ag_backend *b, const char *name) {
    const char *text = ag_backend_describe(b);
    const json_field fields[] = {
        {"name", json_string(name)},
        {"description", json_text(text, strlen(text))},
        {"threads", json_integer((json_int_t)ag_backend_threads(b))},
    };
    return json_object_of(fields, sizeof fields / sizeof fields[0]);
}

int command_devices(int argc, char **argv) {
    bool json = false;
    const option_def defs[] = {
        {.name = "json", .kind = OPTION_FLAG, .help = "print a list of objects"},
    };
    command_line line = {
        .usage = "devices [--json]",
        .description = "Lists the backends of this build and what each runs on; the names are "
                       "those that -b takes.",
        .examples = "  antigravity devices",
        .groups = {{"Options", defs, 1, &json}},
        .n_groups = 1,
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    json_t *list = json_array();
    code = EXIT_DONE;
    for (size_t i = 0; ag_backend_list(i) && code == EXIT_DONE; i++) {
        ag_error err;
        ag_backend *b;
        const char *name = ag_backend_list(i);
        ag_backend_params params = {.name = name};
        if (ag_backend_create(&params, &b, &err) != AG_OK) {
            code = complain_error(&err);
            break;
        }
        if (!json) printf("%-8s %s\n", name, ag_backend_describe(b));
        else if (json_array_append_new(list, describe(b, name)) != 0) code = complain_no_memory();
        ag_backend_destroy(b);
    }
    if (!json || code != EXIT_DONE) json_decref(list);
    else code = json_print(list);
    return code;
}
