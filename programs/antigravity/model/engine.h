/* SPDX-License-Identifier: Apache-2.0 */
/* Engine: model, tokenizer, backend and session of a command. Opens them in steps; cheap checks
 * come before the weights are read. */
#ifndef ANTIGRAVITY_ENGINE_H
#define ANTIGRAVITY_ENGINE_H

#include "../options/model_options.h"
#include "prompt.h"

typedef struct engine {
    char *dir;
    ag_model_info info;
    ag_tokenizer *tokenizer; /* NULL: the directory has none */
    ag_backend *backend;
    char device[8]; /* number of the device that -b auto chose; "": another backend */
    ag_model *model;
    ag_session *session;
    double load_s;
} engine;

/* Each step reports a failure and returns an exit code. Start from a zeroed engine. */
int engine_inspect(engine *e, const model_options *o); /* sets dir, info, tokenizer */
/* Fails without a tokenizer; `instead` ends the message. */
int engine_need_tokenizer(const engine *e, const char *instead);
/* Encodes the prompt, if it is text. Fails on ids outside of the model's vocabulary. */
int engine_encode(const engine *e, prompt *p, const prompt_options *o);
/* Planned sessions: n sessions with these parameters. */
typedef struct engine_sessions {
    ag_session_params params;
    size_t n;
} engine_sessions;
/* shape and s: as of engine_plan(), for -b auto. */
int engine_open_backend(engine *e, const model_options *o, const char *shape,
                        const engine_sessions *s);
/* backend_choice.c, for -b auto. Chooses the backend that decodes the model fastest, of the CPU and
 * each OpenCL device with memory for model and sessions, opens it as e->backend, sets e->device and
 * reports the choice. Speeds are measured once and stored: speed_file.h. `params`: of all backends;
 * name and device are ignored. Returns an exit code. */
int engine_choose_backend(engine *e, const model_options *o, const char *shape,
                          const engine_sessions *s, const ag_backend_params *params);
/* Plans the memory of model and sessions on a backend; err may be NULL. */
ag_status engine_make_plan(const engine *e, ag_backend *be, const model_options *o,
                           const char *shape, const engine_sessions *s, ag_memory_plan *plan,
                           ag_error *err);
/* Reports the memory that model and sessions need. Returns EXIT_FAILED if it exceeds what is free.
 * shape NULL: the model in e->dir. */
int engine_plan(engine *e, const model_options *o, const char *shape, const engine_sessions *s);
/* Opens the backend, checks the memory plan and loads the model. */
int engine_load(engine *e, const model_options *o, const engine_sessions *s);
/* Calls engine_load(), then creates the session with n_context slots. */
int engine_load_session(engine *e, const model_options *o, uint32_t n_context);
/* Loads another model on the engine's backend; the caller owns it. `what` labels the progress
 * bar. */
int engine_read_model(const engine *e, const char *dir, ag_model_params params, const char *what,
                      ag_model **out);
/* Frees session, model and backend; the inspected model can be loaded again. */
void engine_unload(engine *e);
void engine_close(engine *e);

#endif
