/* SPDX-License-Identifier: Apache-2.0 */
#include "draft.h"

#include "../command.h"
#include "../terminal/output.h"
#include "model_dir.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns the first id of both vocabularies whose spelling differs; -1 if none. */
static int32_t first_difference(const ag_tokenizer *a, const ag_tokenizer *b) {
    const int32_t n_a = ag_tokenizer_vocab_size(a), n_b = ag_tokenizer_vocab_size(b);
    for (int32_t id = 0; id < n_a && id < n_b; id++) {
        size_t len_a = 0, len_b = 0;
        const char *in_a = ag_tokenizer_token(a, id, &len_a);
        const char *in_b = ag_tokenizer_token(b, id, &len_b);
        if (!in_a != !in_b) return id;
        if (in_a && (len_a != len_b || memcmp(in_a, in_b, len_a) != 0)) return id;
    }
    return -1;
}

static int check_vocabulary(const draft_engine *d, const engine *e) {
    const ag_model_info *info = ag_model_get_info(d->model);
    ag_error err;
    ag_tokenizer *own = NULL;
    if (!e->tokenizer || ag_tokenizer_load(d->dir, &own, &err) != AG_OK) {
        if (info->n_vocab == e->info.n_vocab)
            return EXIT_DONE; /* sizes are all that can be compared */
        return complain_failure("--draft-model: vocabularies differ: %s has %" PRIu32
                                " tokens, %s has %" PRIu32,
                                d->dir, info->n_vocab, e->dir, e->info.n_vocab);
    }
    const int32_t id = first_difference(e->tokenizer, own);
    ag_tokenizer_destroy(own);
    if (id < 0) return EXIT_DONE;
    return complain_failure("--draft-model: vocabularies differ: token %" PRId32
                            " of %s is another one in %s",
                            id, d->dir, e->dir);
}

static int load(draft_engine *d, const engine *e, const model_options *m) {
    const int code = engine_read_model(e, d->dir, model_params_of_type(AG_WEIGHTS_AUTO),
                                       "loading the draft model", &d->model);
    if (code == EXIT_DONE && m->verbose)
        complain("%s: drafts, %zu MiB", d->dir, ag_model_memory_bytes(d->model) >> 20);
    return code;
}

/* Checks the memory plan. Subtracts plan.draft_bytes: the draft model itself has no drafts. */
static int plan(const draft_engine *d, const engine *e, const ag_session_params *session,
                bool quiet) {
    ag_error err;
    ag_memory_plan plan;
    char more[32];
    const ag_model_params params = model_params_of_type(AG_WEIGHTS_AUTO);
    ag_status st = ag_memory_plan_make(e->backend, d->dir, &params, session, 1, &plan, &err);
    if (st == AG_OK) st = ag_memory_plan_check(&plan, e->backend, &err);
    if (st != AG_OK) return complain_error(&err);
    if (!quiet)
        complain("memory: up to %s more for the draft model",
                 format_bytes((double)(plan.total_bytes - plan.draft_bytes), more, sizeof more));
    return EXIT_DONE;
}

int draft_open(draft_engine *d, const engine *e, const speculation_options *o,
               const model_options *m, uint32_t n_context) {
    ag_error err;
    if (!o->draft_model || o->how == AG_SPECULATE_OFF) return EXIT_DONE;
    ag_session_params params = ag_session_defaults();
    params.max_seq_len = n_context;
    params.prefill_chunk = m->prefill_chunk;
    int code = model_dir_find(o->draft_model, m->quiet, &d->dir);
    if (code == EXIT_DONE) code = plan(d, e, &params, m->quiet);
    if (code == EXIT_DONE) code = load(d, e, m);
    if (code == EXIT_DONE) code = check_vocabulary(d, e);
    if (code != EXIT_DONE) return code;
    ag_status status = ag_session_create(d->model, &params, &d->session, &err);
    return status == AG_OK ? EXIT_DONE : complain_error(&err);
}

void draft_close(draft_engine *d) {
    ag_session_destroy(d->session);
    ag_model_destroy(d->model);
    free(d->dir);
    *d = (draft_engine){0};
}
