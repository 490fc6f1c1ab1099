/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity models lists the store; antigravity rm removes models. */
#include "models.h"
#include "command.h"
#include "support/table.h"
#include "terminal/output.h"

#include <antigravity/antigravity.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const table_column columns[] = {
    {"name", "model", TABLE_TEXT, 0, 0, 24},
    {"kind", "kind", TABLE_TEXT, 0, 1, 40},
    {"bytes", "size", TABLE_BYTES, 0, 0, 10},
    {"used", "used", TABLE_TEXT, 0, 2, 16},
};

/* Writes "2026-11-22 09:14", or "never". */
static void describe_time(time_t t, char *text, size_t cap) {
    struct tm local;
    if (!t || !localtime_r(&t, &local) || !strftime(text, cap, "%Y-%m-%d %H:%M", &local))
        snprintf(text, cap, "never");
}

/* Describes the model, or the error of inspecting it. */
static void describe_model(const model_store *s, const store_entry *e, char *kind, size_t cap,
                           ag_model_info *info, bool *known) {
    char path[PATH_MAX];
    ag_error err;
    *known = false;
    *info = (ag_model_info){.n_parameters = 0};
    if (e->is_part) {
        snprintf(kind, cap, "incomplete: pull it again to resume");
    } else if (!store_model_path(s, e, path)) {
        snprintf(kind, cap, "its path is too long");
    } else if (ag_model_inspect(path, NULL, info, &err) != AG_OK) {
        snprintf(kind, cap, "%s", err.msg);
    } else {
        *known = true;
        snprintf(kind, cap, "%s, %.1f M, %s", info->architecture, (double)info->n_parameters / 1e6,
                 info->file_type_name);
    }
    make_printable(kind);
}

json_t *models_row(const model_store *s, const store_entry *e, bool full) {
    char kind[512], used[32], name[NAME_MAX + 1], path[PATH_MAX + NAME_MAX + 2];
    ag_model_info info;
    bool known;
    describe_model(s, e, kind, sizeof kind, &info, &known);
    describe_time(store_used(s, e), used, sizeof used);
    snprintf(name, sizeof name, "%s", e->name);
    if (!full) make_printable(name);
    json_t *row = JSON_OBJECT(
        {"name", json_text(name, strlen(name))}, {"kind", json_text(kind, strlen(kind))},
        {"bytes", json_integer((json_int_t)store_bytes(s, e))},
        {"used", full && !store_used(s, e) ? json_null() : json_string(used)});
    if (!full || !row) return row;
    snprintf(path, sizeof path, "%s/%s", s->path, e->file);
    return JSON_ADD(
        row, {"path", json_text(path, strlen(path))}, {"complete", json_boolean(!e->is_part)},
        {"architecture", known ? json_string(info.architecture) : json_null()},
        {"parameters", known ? json_integer((json_int_t)info.n_parameters) : json_null()},
        {"type", known ? json_string(info.file_type_name) : json_null()});
}

static int list_models(table_format format) {
    model_store s;
    result_table t = {
        .format = format, .columns = columns, .n = sizeof columns / sizeof columns[0]};
    int code = store_open(&s);
    for (size_t i = 0; i < s.n && code == EXIT_DONE; i++)
        code = table_add(&t, models_row(&s, &s.entries[i], format == TABLE_JSON));
    if (code == EXIT_DONE && !s.n && format == TABLE_MD)
        complain("%s: no models yet; 'antigravity pull' fetches one", s.path);
    code = table_finish(&t, JSON_OBJECT({"store", json_text(s.path, strlen(s.path))}), code);
    store_close(&s);
    return code;
}

int command_models(int argc, char **argv) {
    table_format format = TABLE_MD;
    command_line line = {
        .usage = "models [OPTION]...",
        .description = "Lists the models of the store, which 'antigravity pull' fills:\n"
                       "description, size, and when -m NAME last chose them. NAME may be a\n"
                       "unique prefix, in any case. 'antigravity rm NAME' removes a model.\n"
                       "\n"
                       "Environment: ANTIGRAVITY_MODELS (the store; default\n"
                       "$XDG_DATA_HOME/antigravity/models, which is\n"
                       "~/.local/share/antigravity/models). Directories and .gguf files may also\n"
                       "be copied or linked into it.",
        .examples = "  antigravity models\n"
                    "  antigravity models --json",
        .groups = {table_group(&format)},
        .hint = ": this command lists; 'antigravity rm NAME' removes",
    };
    int code = options_parse(&line, argc, argv);
    return code == OPTIONS_RUN ? list_models(format) : code;
}

/* ---- rm ---- */

/* Asks on the terminal. Returns EXIT_DONE if the user agrees. */
static int confirm(const store_entry *e, uint64_t bytes) {
    char size[32], answer[16] = "";
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return complain_usage("no terminal to confirm on: give --yes");
    fprintf(stderr, "remove %s (%s)? [y/N] ", e->file,
            format_bytes((double)bytes, size, sizeof size));
    fflush(stderr);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return EXIT_DONE;
    return complain_failure("%s: not removed", e->file);
}

static int remove_model(const model_store *s, const char *name, bool yes) {
    enum { MAX_MATCHES = 20 };
    size_t found[MAX_MATCHES];
    char names[1024];
    size_t n = store_match(s, name, false, found, MAX_MATCHES);
    if (n > 1) {
        store_list_names(s, found, n, names, sizeof names);
        return complain_usage("'%s': ambiguous: %s; give one of them", name, names);
    }
    if (!n) {
        n = store_match(s, name, true, found, MAX_MATCHES);
        store_list_names(s, found, n, names, sizeof names);
        return complain_failure("'%s': no such model in %s%s%s", name, s->path,
                                n ? "; did you mean " : "", names);
    }
    const store_entry *e = &s->entries[found[0]];
    int code = yes ? EXIT_DONE : confirm(e, store_bytes(s, e));
    if (code != EXIT_DONE) return code;
    const int error = store_remove(s, e);
    if (!error) return EXIT_DONE;
    return complain_failure("%s/%s: %s", s->path, e->file,
                            error == EBUSY ? "another process is fetching it" : strerror(error));
}

int command_rm(int argc, char **argv) {
    bool yes = false;
    const option_def defs[] = {
        {.name = "yes", .letter = 'y', .kind = OPTION_FLAG, .help = "do not ask"},
    };
    command_line line = {
        .usage = "rm NAME... [--yes]",
        .description = "Removes models, or partial models of an interrupted pull, from the\n"
                       "store. Asks on a terminal. Removes nothing outside of the store: links\n"
                       "are removed, not followed.",
        .examples = "  antigravity rm SmolLM2-135M",
        .groups = {{"Options", defs, 1, &yes}},
        .max_operands = MAX_OPERANDS,
        .hint = ": too many at once",
    };
    model_store s;
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    if (!line.n_operands) return complain_usage("no model given; 'antigravity models' lists them");
    code = store_open(&s);
    for (size_t i = 0; i < line.n_operands && code == EXIT_DONE; i++)
        code = remove_model(&s, line.operands[i], yes);
    store_close(&s);
    return code;
}
