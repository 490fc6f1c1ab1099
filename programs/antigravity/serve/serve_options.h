/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of `antigravity serve`. */
#ifndef ANTIGRAVITY_SERVE_SERVE_OPTIONS_H
#define ANTIGRAVITY_SERVE_SERVE_OPTIONS_H

#include "../options/model_options.h"
#include "../options/replay_options.h"
#include "server.h"

enum { MAX_SERVED = 32, MAX_ALIASES = 64, MAX_TRUSTED = 64 };

typedef struct served_option {
    const char *path;          /* NULL: the bundled model */
    const char *template_file; /* NULL: the model's own */
} served_option;

typedef struct alias_option {
    const char *name;
    size_t model; /* index in `served` */
} alias_option;

typedef struct serve_options {
    model_options model; /* load and session settings of all models */
    served_option served[MAX_SERVED];
    size_t n_served; /* from -m */
    alias_option aliases[MAX_ALIASES];
    size_t n_aliases;
    ag_serving_params engine;
    replay_options replay;
    server_settings server;
    const char *host, *unix_path, *config;
    const char *tls_cert, *tls_key; /* both or neither */
    uint32_t port;
    peer_range trusted[MAX_TRUSTED]; /* server.limits points here */
    bool insecure, load_later;
    bool serves_store;    /* no model was named: those of the store are served */
    uint64_t store_limit; /* bytes; 0: no limit */
    double keep_alive_s;  /* NAN: not given; negative: never unload */
    atomic_size_t bytes;  /* memory of connections and requests */
} serve_options;

/* Returns the seconds after which a model without requests is unloaded. of_directory: it was not
 * named, but is in a directory of models. */
double serve_keep_alive(const serve_options *o, bool of_directory);

/* Returns OPTIONS_RUN, or an exit code. */
int serve_options_read(serve_options *o, int argc, char **argv);

#endif
