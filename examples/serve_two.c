/* SPDX-License-Identifier: Apache-2.0 */
/* Generates two stories concurrently:  serve_two MODEL_DIR */
#include <antigravity/antigravity.h>
#include <antigravity/serving.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

typedef struct story {
    char text[4096];
    size_t len, n_tokens;
    bool ended;
    ag_status status;
} story;

/* Runs on the engine's thread: records the event and returns. */
static void on_event(void *user, const ag_request_event *e) {
    story *s = user;
    pthread_mutex_lock(&lock);
    if (e->kind == AG_REQUEST_TOKEN && e->len < sizeof s->text - s->len) {
        memcpy(s->text + s->len, e->text, e->len);
        s->len += e->len;
    }
    if (e->kind == AG_REQUEST_ANSWERED) s->n_tokens = e->n_generated;
    if (e->kind == AG_REQUEST_ENDED) {
        s->ended = true;
        s->status = e->status;
    }
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static ag_status submit(ag_serving *serving, ag_served_model *model, const char *prompt, story *out,
                        ag_error *err) {
    ag_request_params request = ag_request_defaults(model);
    ag_ids ids = {0};
    ag_status st = ag_tokenizer_encode(ag_served_model_tokenizer(model), prompt, strlen(prompt),
                                       AG_ENCODE_BOS, &ids, err);
    request.prompt = ids.data;
    request.n_prompt = ids.n;
    request.max_tokens = 60;
    request.event = on_event;
    request.user = out;
    if (st == AG_OK) st = ag_serving_submit(serving, &request, NULL, err);
    ag_ids_free(&ids);
    return st;
}

static void wait_for(story *s) {
    pthread_mutex_lock(&lock);
    while (!s->ended) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv) {
    static story stories[2];
    ag_served_model_params params = {
        .name = "demo",
        .path = argc > 1 ? argv[1] : "models/demo",
        .model = ag_model_defaults(),
        .session = ag_session_defaults(),
    };
    ag_serving *serving = NULL;
    ag_served_model *model;
    ag_error err = {0};

    if (ag_serving_create(NULL, &serving, &err) ||
        ag_serving_add_model(serving, &params, &model, &err) ||
        ag_serving_load_model(serving, model, &err) ||
        submit(serving, model, "Once upon a time", &stories[0], &err) ||
        submit(serving, model, "The dog", &stories[1], &err))
        goto done;
    for (int i = 0; i < 2; i++) {
        wait_for(&stories[i]);
        printf("%s\n(%zu tokens)\n\n", stories[i].text, stories[i].n_tokens);
    }

done:
    if (err.status) fprintf(stderr, "serve_two: %s\n", err.msg);
    ag_serving_destroy(serving);
    return err.status ? 1 : 0;
}
