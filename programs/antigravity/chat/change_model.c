/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the model of a conversation, also another one while the conversation continues. */
#include "chat.h"

#include "../command.h"
#include "../terminal/output.h"

#include <stdlib.h>
#include <string.h>

int chat_load_model(chat *c) {
    const engine_sessions one = {chat_session_params(c), 1};
    uint32_t n;
    int code = engine_load(&c->engine, &c->o.model, &one);
    if (code == EXIT_DONE)
        code = draft_open(&c->draft, &c->engine, &c->o.speculation, &c->o.model, c->n_context);
    if (code == EXIT_DONE) code = chat_open_session(c, c->o.model.eviction.params.protected_prefix);
    if (code == EXIT_DONE) code = chat_find_protected(c, &n);
    return code == EXIT_DONE && n != c->n_protected ? chat_open_session(c, n) : code;
}

/* State of the chat that depends on its model. */
typedef struct chat_model {
    engine engine;
    transcript transcript;
    const char *dir; /* --model, borrowed */
    uint32_t n_context;
} chat_model;

static chat_model current_model(const chat *c) {
    return (chat_model){c->engine, c->transcript, c->o.model.dir, c->n_context};
}

static void set_model(chat *c, const chat_model *m) {
    c->engine = m->engine;
    c->transcript = m->transcript;
    c->o.model.dir = m->dir;
    c->n_context = m->n_context;
}

/* Opens c->transcript with the template of the inspected model and the messages of another. */
static int copy_transcript(chat *c, const transcript *from) {
    int code = chat_open_transcript(c);
    if (code == EXIT_DONE) code = transcript_set_system(&c->transcript, from->system);
    for (size_t i = 0; code == EXIT_DONE && i < from->n; i++)
        code = transcript_add_json(&c->transcript, json_incref(from->messages[i].json));
    return code;
}

/* Finds all faults of the model that do not need its weights. */
static int inspect(chat *c, const chat_model *before, const char *name) {
    chat_model next = {.dir = name};
    set_model(c, &next);
    int code = engine_inspect(&c->engine, &c->o.model);
    if (code == EXIT_DONE) code = engine_need_tokenizer(&c->engine, "a conversation needs one");
    if (code == EXIT_DONE) code = copy_transcript(c, &before->transcript);
    if (code != EXIT_DONE) return code;
    c->n_context = context_length(&c->o.model, &c->engine.info);
    return chat_check_context(c);
}

/* Frees the weights, so that those of another model have space. */
static void unload(chat *c, chat_model *m) {
    constraint_close(&c->constraint);
    draft_close(&c->draft);
    engine_unload(&m->engine);
    c->consumed.n = 0;
}

static void close_model(chat_model *m) {
    transcript_close(&m->transcript);
    engine_close(&m->engine);
}

static void mark_unread(transcript *t) {
    for (size_t i = 0; i < t->n; i++) t->messages[i].first = TRANSCRIPT_UNREAD;
}

/* Loads the inspected model in place of `before`, or `before` again. */
static int replace(chat *c, chat_model *before) {
    unload(c, before);
    ag_dry_breakers_destroy(c->o.sampling.dry_breakers); /* tokens of the other vocabulary */
    c->o.sampling.dry_breakers = NULL;
    const int code = chat_load_model(c);
    if (code == EXIT_DONE) return EXIT_DONE;
    chat_model failed = current_model(c);
    unload(c, &failed);
    close_model(&failed);
    set_model(c, before);
    mark_unread(&c->transcript);
    c->leaving = chat_load_model(c) != EXIT_DONE;
    return code;
}

int chat_change_model(chat *c, const char *name) {
    chat_model before = current_model(c);
    char *own_name = strdup(name);
    if (!own_name) return complain_no_memory();
    int code = inspect(c, &before, own_name);
    if (code != EXIT_DONE) {
        chat_model failed = current_model(c);
        close_model(&failed);
        set_model(c, &before);
    } else {
        code = replace(c, &before);
    }
    if (code != EXIT_DONE) {
        free(own_name);
        return code;
    }
    close_model(&before);
    free(c->model_name);
    c->model_name = own_name;
    ag_text_free(&c->model_sampling); /* the settings stay, whichever files set them */
    chat_note(c, "the model is %s now%s", c->engine.dir,
              c->transcript.n ? "; the conversation will be read again" : "");
    return EXIT_DONE;
}
