/* SPDX-License-Identifier: Apache-2.0 */
#include "core/fail.h"

#include <antigravity/serving.h>

ag_serving_params ag_serving_defaults(void) {
    return (ag_serving_params){
        .max_running = 64,
        .max_waiting = 256,
        .step_rows = 512,
        .prefix_bytes = UINT64_MAX,
        .prefix_dir_bytes = UINT64_C(4) << 30,
    };
}

static ag_status not_yet(ag_error *err) {
    return AG_FAIL(err, UNSUPPORTED, "this build serves no requests");
}

ag_status ag_serving_create(const ag_serving_params *params, ag_serving **out, ag_error *err) {
    (void)params;
    *out = NULL;
    return not_yet(err);
}

void ag_serving_destroy(ag_serving *s) { (void)s; }

ag_status ag_serving_add_model(ag_serving *s, const ag_served_model_params *params,
                               ag_served_model **out, ag_error *err) {
    (void)s, (void)params;
    *out = NULL;
    return not_yet(err);
}

ag_status ag_serving_add_alias(ag_serving *s, ag_served_model *m, const char *name, ag_error *err) {
    (void)s, (void)m, (void)name;
    return not_yet(err);
}

ag_served_model *ag_serving_model(ag_serving *s, const char *name) {
    (void)s, (void)name;
    return NULL;
}

size_t ag_serving_n_models(const ag_serving *s) {
    (void)s;
    return 0;
}

ag_served_model *ag_serving_model_at(ag_serving *s, size_t i) {
    (void)s, (void)i;
    return NULL;
}

ag_status ag_serving_load_model(ag_serving *s, ag_served_model *m, ag_error *err) {
    (void)s, (void)m;
    return not_yet(err);
}

const char *ag_served_model_name(const ag_served_model *m) {
    (void)m;
    return NULL;
}

const ag_model_info *ag_served_model_info(const ag_served_model *m) {
    (void)m;
    return NULL;
}

const ag_tokenizer *ag_served_model_tokenizer(const ag_served_model *m) {
    (void)m;
    return NULL;
}

const ag_chat_format *ag_served_model_format(const ag_served_model *m) {
    (void)m;
    return NULL;
}

const ag_sampler_params *ag_served_model_sampling(const ag_served_model *m) {
    (void)m;
    return NULL;
}

const ag_session_params *ag_served_model_session(const ag_served_model *m) {
    (void)m;
    return NULL;
}

ag_status ag_served_model_vocab(ag_served_model *m, const ag_constraint_vocab **out,
                                ag_error *err) {
    (void)m;
    *out = NULL;
    return not_yet(err);
}

ag_request_params ag_request_defaults(ag_served_model *m) {
    return (ag_request_params){.model = m, .n_answers = 1, .max_tokens = -1};
}

ag_status ag_serving_submit(ag_serving *s, const ag_request_params *params, ag_request_id *id,
                            ag_error *err) {
    (void)s, (void)params, (void)id;
    return not_yet(err);
}

void ag_serving_cancel(ag_serving *s, ag_request_id id) { (void)s, (void)id; }

void ag_serving_get_stats(ag_serving *s, ag_serving_stats *out) {
    (void)s;
    *out = (ag_serving_stats){0};
}

void ag_serving_each_session(ag_serving *s, bool (*each)(void *user, const ag_held_session *h),
                             void *user) {
    (void)s, (void)each, (void)user;
}
