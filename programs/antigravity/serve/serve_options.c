/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_options.h"

#include "../command.h"
#include "../terminal/output.h"
#include "system.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define OPTION_STRUCT serve_options

enum { CONTEXT = 8192, MEBI = 1 << 20 };

/* ---- values ---- */

static bool set_max_body(void *target, const char *value, char *reason) {
    uint64_t n = 0;
    if (!parse_size(value, &n, reason)) return false;
    ((serve_options *)target)->server.limits.max_body = (size_t)n;
    return true;
}

static bool add_served(void *target, const char *value, char *reason) {
    serve_options *o = target;
    if (o->n_served == MAX_SERVED || !value[0])
        return reject(reason, value[0] ? "too many models: at most 32" : "the name is empty");
    o->served[o->n_served++].path = value;
    return true;
}

/* Returns the index of the last -m so far. */
static size_t last_model(const serve_options *o) { return o->n_served ? o->n_served - 1 : 0; }

static bool add_alias(void *target, const char *value, char *reason) {
    serve_options *o = target;
    if (o->n_aliases == MAX_ALIASES || !value[0])
        return reject(reason, value[0] ? "too many aliases: at most 64" : "the name is empty");
    o->aliases[o->n_aliases++] = (alias_option){value, last_model(o)};
    return true;
}

static bool set_template(void *target, const char *value, char *reason) {
    serve_options *o = target;
    (void)reason;
    o->served[last_model(o)].template_file = value;
    return true;
}

static bool set_template_variables(void *target, const char *value, char *reason) {
    server_settings *s = &((serve_options *)target)->server;
    json_error_t error;
    json_decref(s->template_variables);
    s->template_variables = json_loads(value, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(s->template_variables)) return true;
    return reject(reason, "'%.60s' is not a JSON object such as {\"enable_thinking\": false}",
                  value);
}

static bool set_keep_alive(void *target, const char *value, char *reason) {
    double *seconds = &((serve_options *)target)->keep_alive_s;
    if (parse_duration(value, seconds) || parse_real(value, -1, 1e9, seconds, reason)) return true;
    return reject(reason, "'%.60s' is not a time such as 300, 5m or 1h30m", value);
}

double serve_keep_alive(const serve_options *o, bool of_directory) {
    enum { DEFAULT_S = 300 };
    const double at_once = 1e-3;
    if (isnan(o->keep_alive_s)) return of_directory ? DEFAULT_S : INFINITY;
    return o->keep_alive_s < 0 ? INFINITY : fmax(o->keep_alive_s, at_once);
}

static bool add_origin(void *target, const char *value, char *reason) {
    origin_rules *r = &((serve_options *)target)->server.origins;
    if (r->n_origins == MAX_ORIGINS)
        return reject(reason, "too many origins: at most %d", MAX_ORIGINS);
    if (strcmp(value, "*") != 0 && !strstr(value, "://"))
        return reject(reason, "'%.60s' is not an origin such as https://chat.example, nor *",
                      value);
    r->origins[r->n_origins++] = value;
    return true;
}

static bool add_host(void *target, const char *value, char *reason) {
    origin_rules *r = &((serve_options *)target)->server.origins;
    if (r->n_hosts == MAX_ORIGINS || !value[0])
        return reject(reason, value[0] ? "too many hosts: at most 32" : "the name is empty");
    r->hosts[r->n_hosts++] = value;
    return true;
}

static bool add_trusted(void *target, const char *value, char *reason) {
    serve_options *o = target;
    connection_limits *l = &o->server.limits;
    for (const char *at = value;; at++) {
        const size_t n = strcspn(at, ",");
        if (l->n_trusted == MAX_TRUSTED)
            return reject(reason, "too many addresses: at most %d", MAX_TRUSTED);
        if (!peer_range_parse(at, n, &o->trusted[l->n_trusted]))
            return reject(reason,
                          "'%.*s' is not an IPv4 or IPv6 address, nor a network such as 10.0.0.0/8",
                          (int)(n < 60 ? n : 60), at);
        l->n_trusted++;
        at += n;
        if (!*at) return true;
    }
}

/* ---- options ---- */

static const option_def model_rows[] = {
    {.name = "model",
     .letter = 'm',
     CALLS("MODEL", add_served),
     .aliases = {"models-dir"},
     .help = "GGUF file, Hugging Face directory, name of a model that 'antigravity models' lists, "
             "or directory of models, each of which is loaded when a request names it; may be "
             "given several times, and the first is loaded at once if it is a model; without it "
             "the models of the store, or if it has none the bundled demo model"},
    {.name = "alias",
     .letter = 'a',
     CALLS("NAME", add_alias),
     .help = "another name of the preceding model; may be given several times"},
    {.name = "any-model",
     SETS_FLAG(server.any_model),
     .help = "unknown model names mean the first model"},
    {.name = "chat-template",
     CALLS("FILE", set_template),
     .aliases = {"chat-template-file"},
     .help = "Jinja template to use instead of the preceding model's own"},
    {.name = "chat-template-kwargs",
     CALLS("JSON", set_template_variables),
     .help = "defaults for variables of the templates: {\"enable_thinking\": false}"},
    {.name = "load-later",
     SETS_FLAG(load_later),
     .help = "load the first model with its first request, too"},
    {.name = "allow-pull",
     SETS_FLAG(server.allow_pull),
     .help = "let admins pull, copy, create and delete models of the store through ollama's API: "
             "keys that --api-key-file marks, or without keys programs on this machine"},
    {.name = "store-limit",
     SETS_SIZE(store_limit),
     .help = "maximum size of the store after such a pull, such as 100G"},
    {.name = "keep-alive",
     CALLS("TIME", set_keep_alive),
     .help = "unload a model this time after its last request: seconds, or 5m, 1h; -1: never "
             "(default: 5m for models of a directory, never for others)"},
};

static const option_def config_rows[] = {
    {.name = "config",
     SETS_FILE("FILE", config, NULL),
     .help =
         "options from a JSON object: {\"model\": [\"a\", \"b\"], \"port\": 8080}; those of the "
         "command line override them, or are added if they may be given several times"},
};

static const option_def network_rows[] = {
    {.name = "host",
     SETS_NAME("ADDRESS", host),
     .help = "address to listen on; 0.0.0.0 and :: are all interfaces"},
    {.name = "port", SETS_U32("N", port, 0, 65535), .help = "0: a free port, which is printed"},
    {.name = "unix",
     SETS_NAME("PATH", unix_path),
     .help =
         "listen on this Unix socket, for its owner only, and on no port unless --host is given"},
    {.name = "api-key-file",
     SETS_NAME("FILE", server.key_file),
     .help = "API keys, one a line, marked by 'admin' after the key if it may unload and change "
             "models; also those in the environment variable ANTIGRAVITY_API_KEY. SIGHUP reloads "
             "them"},
    {.name = "tls-cert",
     SETS_NAME("FILE", tls_cert),
     .aliases = {"ssl-cert-file"},
     .help = "use TLS: certificate in PEM, followed by its chain. SIGHUP reloads it and the key"},
    {.name = "tls-key",
     SETS_NAME("FILE", tls_key),
     .aliases = {"ssl-key-file"},
     .help = "private key of the certificate in PEM, without a passphrase"},
    {.name = "insecure",
     SETS_FLAG(insecure),
     .help = "listen on public addresses without API keys"},
    {.name = "allowed-host",
     CALLS("NAME", add_host),
     .help = "accept this Host, besides localhost and --host; may be given several times"},
    {.name = "cors",
     CALLS("ORIGIN", add_origin),
     .help = "accept pages of this origin, such as https://chat.example; *: all pages; may be "
             "given several times"},
    {.name = "max-connections",
     SETS_U32("N", server.limits.max_connections, 1, 1000000),
     .help = "if all are open, the one that has waited longest for a complete request is closed "
             "for a new one; one address may have a quarter of them, except loopback addresses"},
    {.name = "trust-proxy",
     CALLS("ADDRESS[,...]", add_trusted),
     .help = "address of a proxy, or a network such as 10.0.0.0/8, that may open all connections; "
             "may be given several times"},
    {.name = "max-body",
     CALLS("SIZE", set_max_body),
     .help = "maximum size of a body (default 32M, with --memory at most a 64th of that)"},
    {.name = "idle-timeout",
     SETS_U32("SECONDS", server.limits.idle_s, 1, 86400),
     .help = "close connections without requests after this time"},
    {.name = "read-timeout",
     SETS_U32("SECONDS", server.limits.read_s, 1, 86400),
     .help = "time to send the head of a request; a body has one second more for each 16 KiB"},
    {.name = "write-timeout",
     SETS_U32("SECONDS", server.limits.write_s, 1, 86400),
     .help = "close connections whose client reads nothing for this time"},
    {.name = "request-timeout",
     SETS_U32("SECONDS", server.timeout_s, 0, 1000000),
     .help = "end an answer after this time; 0: never"},
    {.name = "prepare-limit",
     SETS_REAL("SECONDS", server.prepare_limit_s, 0.01, 1000000),
     .help = "limit on the processor time to parse a request, render its template, tokenize it and "
             "compile its schema"},
    {.name = "grace",
     SETS_U32("SECONDS", server.grace_s, 0, 86400),
     .help = "time for answers to end after SIGTERM or Ctrl-C; a second signal ends them at once"},
    {.name = "log",
     SETS_NAME("FILE", server.log),
     .help = "write a line of JSON for each request, without its text; -: standard output"},
};

static const option_def engine_rows[] = {
    {.name = "memory",
     SETS_SIZE(engine.memory_limit),
     .help = "limit on all memory of the process, such as 2G: weights, caches, everything "
             "(default: no limit)"},
    {.name = "max-running",
     SETS_U32("N", engine.max_running, 1, 256),
     .aliases = {"parallel", "--np"},
     .help = "maximum number of concurrent answers"},
    {.name = "max-waiting",
     SETS_U32("N", engine.max_waiting, 0, 1000000),
     .help = "maximum number of queued requests; more are rejected (429). While others wait, one "
             "key may have half of them"},
    {.name = "step-rows",
     SETS_U32("N", engine.step_rows, 32, 65536),
     .no_default = true,
     .help =
         "maximum number of tokens in a pass over the weights, half of them of a prompt; larger "
         "passes delay answers (default 512, with -b opencl 2048)"},
    {.name = "wide-steps",
     SETS_FLAG(engine.wide_steps),
     .help = "faster with many answers on GPUs and on processors with matrix units, but rounding "
             "then depends on the other requests"},
    {.name = "prefix-memory",
     SETS_SIZE(engine.prefix_bytes),
     .help = "memory for cached sessions, so that the next turn computes new tokens only; 0: none"},
    {.name = "prefix-dir",
     SETS_NAME("DIR", engine.prefix_dir),
     .help = "write cached sessions that leave memory to this directory; they survive a restart"},
    {.name = "prefix-disk",
     SETS_SIZE(engine.prefix_dir_bytes),
     .help = "maximum size of --prefix-dir (default 4G)"},
    {.name = "share-prefixes",
     SETS_FLAG(server.share_prefixes),
     .help =
         "share cached sessions among all keys; response times then reveal what others requested"},
};

#define ROWS(title, rows, target) \
    (option_group) { title, rows, sizeof rows / sizeof rows[0], target }

static const char description[] =
    "Serves models over HTTP for clients of OpenAI's API: /v1/chat/completions, /v1/completions,\n"
    "/v1/embeddings, /v1/models; also /tokenize, /detokenize, /apply-template, /health, /metrics\n"
    "and /v1/kv. docs/reference/server.md lists every field. It listens on this machine only by "
    "default.\n"
    "SIGTERM and Ctrl-C end it when the running answers have ended. Systemd may pass the sockets\n"
    "(LISTEN_FDS). Exit status: 0 ended by a signal, 1 failed, 2 wrong usage.";

static const char examples[] =
    "  antigravity serve -m Qwen3-0.6B\n"
    "  antigravity serve -m Qwen3-0.6B --alias gpt-4o -m SmolLM2-135M --memory 2G\n"
    "  antigravity serve -m Qwen3-0.6B --host 0.0.0.0 --api-key-file keys --allowed-host ai.lan "
    "\\\n"
    "      --tls-cert chain.pem --tls-key key.pem\n"
    "  antigravity serve --unix /run/user/1000/antigravity.sock --log access.jsonl";

static serve_options defaults(void) {
    serve_options o = {
        .model = model_options_defaults(),
        .engine = ag_serving_defaults(),
        .replay = replay_defaults(),
        .host = NULL,
        .port = 8080,
        .keep_alive_s = NAN,
        .server =
            {
                .limits =
                    {
                        .max_head = 32768,
                        .max_body = (size_t)32 * MEBI,
                        .max_unread = (size_t)1 * MEBI,
                        .max_connections = 4096,
                        .idle_s = 75,
                        .read_s = 30,
                        .write_s = 60,
                    },
                .n_workers = 2,
                .prepare_limit_s = 2,
                .grace_s = 10,
            },
    };
    o.model.max_seq_len = CONTEXT;
    o.engine.step_rows = 0; /* not given */
    return o;
}

/* Derives the limits of requests from --memory: an eighth is for them. */
static void set_memory_limits(serve_options *o) {
    enum {
        SHARE = 8,
        ANSWER_SHARE = 256,
        ANSWER_MEBI = 8,
        RESPONSE_SHARE = 128,
        RESPONSE_MEBI = 32
    };
    const uint64_t limit = o->engine.memory_limit;
    const size_t share = limit ? (size_t)(limit / SHARE) : (size_t)1024 * MEBI;
    o->server.memory_limit = limit;
    o->server.max_bytes = share;
    o->server.limits.max_bodies = share / 2;
    /* Parsing a prompt takes 4 times its bytes, and then its tokens need memory. */
    enum { BODY_SHARE = 8 };
    const size_t most = share / BODY_SHARE;
    if (o->server.limits.max_body > most) o->server.limits.max_body = most;
    /* Connections with TLS may take half of it. */
    const size_t max_tls = share / 2 / TLS_MAX_BYTES;
    if (o->tls_cert && o->server.limits.max_connections > max_tls)
        o->server.limits.max_connections = max_tls ? (uint32_t)max_tls : 1;
    o->server.answer_bytes = (size_t)ANSWER_MEBI * MEBI;
    o->server.response_bytes = (size_t)RESPONSE_MEBI * MEBI;
    if (!limit) return;
    if (limit / ANSWER_SHARE < o->server.answer_bytes)
        o->server.answer_bytes = (size_t)(limit / ANSWER_SHARE);
    if (limit / RESPONSE_SHARE < o->server.response_bytes)
        o->server.response_bytes = (size_t)(limit / RESPONSE_SHARE);
    o->engine.caller_reserve = share + o->server.answer_bytes + o->server.response_bytes;
}

static int check(serve_options *o, const command_line *line) {
    if (line->n_operands) {
        if (o->n_served)
            return complain_usage(
                "two models given: '%s' as an argument, '%s' with -m; give each with -m",
                line->operands[0], o->served[0].path);
        o->served[o->n_served++].path = line->operands[0];
    }
    /* These describe one model: the bundled one. */
    if (!o->n_served && (o->n_aliases || o->served[0].template_file)) o->n_served = 1;
    if (!o->tls_cert != !o->tls_key)
        return complain_usage("--tls-%s requires --tls-%s", o->tls_cert ? "cert" : "key",
                              o->tls_cert ? "key" : "cert");
    if (!o->unix_path && !o->host) o->host = "127.0.0.1";
    set_memory_limits(o);
    o->server.limits.trusted = o->trusted;
    o->server.origins.bound = o->host;
    o->engine.replay_share = (float)o->replay.share;
    o->engine.replay_keep_ratio = o->replay.keep_ratio;
    o->engine.replay_keep_tokens = o->replay.keep_tokens;
    o->engine.replay_after_s = o->replay.after_s;
    enum { LONG_STEP = 2048 };
    if (!o->engine.step_rows) {
        o->engine.step_rows = names_opencl(&o->model) ? LONG_STEP : ag_serving_defaults().step_rows;
    }
    const int replay = replay_check(&o->replay, &o->model.eviction);
    const int code = replay == EXIT_DONE ? model_options_check(&o->model) : replay;
    const char *spill = o->model.eviction.spill.path;
    if (code != EXIT_DONE || !spill || system_is_directory(spill)) return code;
    return complain_usage("--kv-spill %s: not a directory; a server needs one for its sessions",
                          spill);
}

int serve_options_read(serve_options *o, int argc, char **argv) {
    *o = defaults();
    o->host = "127.0.0.1"; /* shown by --help; reset below if there is a Unix socket */
    const char *const usual_host = o->host;
    option_group weights = model_group(&o->model);
    weights.defs++, weights.n--; /* -m is this command's own */
    option_group eviction = eviction_choice_group(&o->model.eviction);
    command_line line = {
        .usage = "serve [OPTION]... [MODEL]",
        .description = description,
        .examples = examples,
        .groups = {ROWS("Models", config_rows, o), ROWS("Models", model_rows, o), weights,
                   ROWS("Network", network_rows, o), ROWS("Engine", engine_rows, o),
                   context_group(&o->model), kv_type_group(&o->model), eviction,
                   eviction_rules_group(&o->model.eviction), replay_idle_group(&o->replay),
                   threads_group(&o->model), machine_group(&o->model), message_group(&o->model)},
        .max_operands = 1,
        .is_server = true,
    };
    const int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    if (o->unix_path && o->host == usual_host) o->host = NULL;
    const int checked = check(o, &line);
    return checked == EXIT_DONE ? OPTIONS_RUN : checked;
}
