/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity pull: fetches a model into the store. */
#include "../command.h"
#include "../model/store.h"
#include "../options/options.h"
#include "../support/json_out.h"
#include "../support/user_files.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct pull_options {
    const char *name, *sha256;
    uint32_t retries;
    double retry_delay_s, slow_time_s;
    uint64_t store_limit; /* bytes; 0: no limit */
    bool quiet, json;
} pull_options;

#define OPTION_STRUCT pull_options
static const option_def pull_defs[] = {
    {.name = "name",
     SETS_NAME("NAME", name),
     .help = "name in the store (default: that of the file or the repository)"},
    {.name = "sha256",
     SETS_NAME("HEX", sha256),
     .help = "the SHA-256 that a file from a URL must have; hubs provide it"},
    {.name = "retries",
     SETS_U32("N", retries, 0, 1000),
     .help = "retries after a temporary failure; the count restarts each time the file has grown "
             "by 64 KiB"},
    {.name = "retry-delay",
     SETS_REAL("SECONDS", retry_delay_s, 0, 3600),
     .help = "delay before the first retry; doubles"},
    {.name = "slow-time",
     SETS_REAL("SECONDS", slow_time_s, 1, 3600),
     .help = "an attempt fails if less than 1 KiB/s arrives over this time"},
    {.name = "store-limit",
     SETS_SIZE(store_limit),
     .help = "fail if the store would exceed this size, such as 100G"},
    {.name = "json",
     SETS_FLAG(json),
     .help = "report progress and the path as lines of JSON on standard output"},
    {.name = "quiet",
     .letter = 'q',
     SETS_FLAG(quiet),
     .help = "no progress or notes on standard error"},
};

/* ---- where from, and as who ---- */

static int read_endpoint(char *endpoint, size_t cap) {
    const char *given = getenv("HF_ENDPOINT");
    if (!given || !given[0]) given = "https://huggingface.co";
    size_t n = strlen(given);
    while (n && given[n - 1] == '/') n--;
    if (!http_is_url(given) || n >= cap || strpbrk(given, "?#@ "))
        return complain_usage("HF_ENDPOINT: '%s' is not a URL such as https://huggingface.co",
                              given);
    snprintf(endpoint, cap, "%.*s", (int)n, given);
    return EXIT_DONE;
}

/* Reads the token; *token is NULL without one. Never print its value. */
static int read_token(char *buffer, size_t cap, const char **token) {
    const char *given = getenv("HF_TOKEN");
    *token = NULL;
    if (!given || !given[0]) return EXIT_DONE;
    size_t n = strcspn(given, " \t\r\n");
    bool visible = true;
    for (size_t i = 0; i < n; i++) visible = visible && given[i] > ' ' && given[i] < 0x7f;
    if (!n || n >= cap || !visible || given[n + strspn(given + n, " \t\r\n")])
        return complain_usage(
            "HF_TOKEN: invalid token; it must be one word of printable ASCII characters");
    snprintf(buffer, cap, "%.*s", (int)n, given);
    *token = buffer;
    return EXIT_DONE;
}

/* ---- the command ---- */

static int make_plan(const hub *h, const char *source, const pull_options *o, pull_plan *plan) {
    int code;
    if (hub_is_source(h->endpoint, source)) code = pull_plan_hub(h, source, plan);
    else if (http_is_url(source)) code = pull_plan_url(h, source, plan);
    else
        code =
            complain_usage("'%s': neither a URL nor a repository; use https://HOST/FILE.gguf, or "
                           "ORG/NAME[:QUANT|:FILE.gguf][@REVISION], such as "
                           "bartowski/SmolLM2-135M-Instruct-GGUF",
                           source);
    if (code == EXIT_DONE && o->name) {
        const size_t n = strlen(o->name);
        const bool ends = path_ends_in(o->name, ".gguf") && !plan->is_directory;
        snprintf(plan->name, sizeof plan->name, "%.*s", (int)(ends ? n - 5 : n), o->name);
    }
    if (code == EXIT_DONE && o->sha256 && plan->n != 1)
        code = complain_usage("--sha256 needs a single file; this model has %zu", plan->n);
    if (code == EXIT_DONE && o->sha256) (void)pull_read_hash(o->sha256, plan->files[0].sha256);
    if (code != EXIT_DONE || store_name_is_valid(plan->name)) return code;
    return complain_usage("'%s': invalid model name; choose one with --name", plan->name);
}

static int pull(const char *source, const pull_options *o) {
    char endpoint[512], token_text[512], origin[512], store[PATH_MAX], path[PATH_MAX];
    const char *token;
    hub h = {.endpoint = endpoint};
    pull_plan plan = {.n = 0};
    int code = read_endpoint(endpoint, sizeof endpoint);
    if (code == EXIT_DONE) code = read_token(token_text, sizeof token_text, &token);
    if (code != EXIT_DONE) return code;
    if (!store_locate(store))
        return complain_failure("no directory for models: set ANTIGRAVITY_MODELS or HOME");
    snprintf(origin, sizeof origin, "%.*s", (int)http_origin_length(endpoint), endpoint);
    const http_params params = {.origin = origin,
                                .token = token,
                                .retries = o->retries,
                                .retry_delay_s = o->retry_delay_s,
                                .slow_s = o->slow_time_s,
                                .quiet = o->quiet};
    code = http_open(&params, &h.client);
    interrupt_install();
    if (code == EXIT_DONE) code = make_plan(&h, source, o, &plan);
    if (code == EXIT_INTERRUPTED) complain("interrupted");
    if (code == EXIT_DONE) {
        const fetch_settings settings = {store, o->store_limit, o->quiet || o->json};
        code = fetch_model(h.client, &plan, &settings, path);
        if (code == EXIT_DONE && o->json)
            code = json_print(JSON_OBJECT({"path", json_text(path, strlen(path))}));
        else if (code == EXIT_DONE) printf("%s\n", path);
    }
    pull_plan_free(&plan);
    http_close(h.client);
    return code;
}

static int check_options(const command_line *line, const pull_options *o) {
    char hex[SHA256_HEX];
    if (!line->n_operands) {
        complain("no model given: use ORG/NAME of a repository, or the URL of a GGUF file");
    } else if (o->name && !store_name_is_valid(o->name)) {
        complain("--name: '%s': invalid name; it may hold letters, digits and '._-', and must not "
                 "begin with '.' or '-' or end in '" STORE_PART "'",
                 o->name);
    } else if (o->sha256 && !pull_read_hash(o->sha256, hex)) {
        complain("--sha256: '%s' is not 64 hexadecimal digits", o->sha256);
    } else {
        return EXIT_DONE;
    }
    return EXIT_USAGE;
}

int command_pull(int argc, char **argv) {
    pull_options o = {.retries = 4, .retry_delay_s = 0.5, .slow_time_s = 60};
    command_line line = {
        .usage = "pull ORG/NAME[:QUANT|:FILE.gguf|:safetensors][@REVISION] | URL [OPTION]...",
        .description = "Fetches a model into the store, where -m NAME finds it: a GGUF file from\n"
                       "a URL, or a repository of Hugging Face. From a repository with GGUF\n"
                       "files it takes the one with QUANT in its name (default Q4_K_M, else\n"
                       "Q8_0, else the first); from another one config.json, the tokenizer and\n"
                       "all safetensors files. Checks sizes and SHA-256. The same command\n"
                       "resumes an interrupted pull. Prints the model's path.\n"
                       "\n"
                       "Environment: HF_TOKEN (for models that require it; sent only to its own\n"
                       "host), HF_ENDPOINT (a mirror that replaces https://huggingface.co),\n"
                       "HTTPS_PROXY, ANTIGRAVITY_MODELS (the store; default\n"
                       "$XDG_DATA_HOME/antigravity/models, which is\n"
                       "~/.local/share/antigravity/models).",
        .examples = "  antigravity pull bartowski/SmolLM2-135M-Instruct-GGUF\n"
                    "  antigravity pull Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0 --name qwen\n"
                    "  antigravity pull HuggingFaceTB/SmolLM2-135M@main\n"
                    "  antigravity pull https://example.org/model.gguf && antigravity generate -m "
                    "model -p Hello",
        .groups = {OPTION_GROUP("Options", pull_defs, &o)},
        .max_operands = 1,
        .hint = ": one model at a time",
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = check_options(&line, &o);
    if (code != EXIT_DONE) return code;
    if (o.json) progress_as_json();
    else if (o.quiet) progress_silence();
    return pull(line.operands[0], &o);
}
