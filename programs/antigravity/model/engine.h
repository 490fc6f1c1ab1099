/* SPDX-License-Identifier: Apache-2.0 */
/* From options to a session, in steps: what is cheap and may be wrong comes before the weights. */
#ifndef ANTIGRAVITY_ENGINE_H
#define ANTIGRAVITY_ENGINE_H

#include "../options/model_options.h"
#include "prompt.h"

typedef struct engine {
    char *dir;
    ag_model_info info;
    ag_tokenizer *tokenizer; /* NULL: the directory holds none */
    ag_backend *backend;
    ag_model *model;
    ag_session *session;
    double load_s;
} engine;

/* Each step says what is wrong and returns an exit code. Start from a zeroed engine. */
int engine_inspect(engine *e, const model_options *o); /* dir, info, tokenizer */
/* Refuses a model without a tokenizer; `instead` says what can be done or not without one. */
int engine_need_tokenizer(const engine *e, const char *instead);
/* Ids of the prompt, if it is a text; those that the model does not know are refused. */
int engine_encode(const engine *e, prompt *p, const prompt_options *o);
int engine_open_backend(engine *e, const model_options *o);
/* The sessions that will be made: n of these parameters. */
typedef struct engine_sessions {
    ag_session_params params;
    size_t n;
} engine_sessions;
/* Says what model and sessions will take; EXIT_FAILED if that does not fit. shape NULL: e->dir. */
int engine_plan(engine *e, const model_options *o, const char *shape, const engine_sessions *s);
/* Backend, plan and model: takes time. */
int engine_load(engine *e, const model_options *o, const engine_sessions *s);
/* The same, and the one session of so many slots. */
int engine_load_session(engine *e, const model_options *o, uint32_t n_context);
/* The files of e->dir as a model of its own, which is the caller's. `what` names the progress. */
int engine_read_model(const engine *e, ag_model_params params, const char *what, ag_model **out);
void engine_close(engine *e);

#endif
