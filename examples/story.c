/* SPDX-License-Identifier: Apache-2.0 */
/* Tells a story:  story MODEL_DIR "Once upon a time" */
#include <antigravity/antigravity.h>
#include <stdio.h>
#include <string.h>

static bool print_text(void *user, int32_t id, const char *text, size_t len) {
    (void)user, (void)id;
    return fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : "models/demo";
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
    ag_generate_params generation = ag_generate_defaults();
    ag_sampler_params sampling = ag_sampler_defaults();
    ag_backend *backend = NULL;
    ag_model *model = NULL;
    ag_tokenizer *tokenizer = NULL;
    ag_session *session = NULL;
    ag_ids ids = {0};
    ag_generate_stats stats;
    ag_error err = {0};

    if (ag_backend_create(NULL, &backend, &err) ||
        ag_model_load(backend, dir, NULL, &model, &err) ||
        ag_tokenizer_load(dir, &tokenizer, &err) ||
        ag_session_create(model, NULL, &session, &err) ||
        ag_tokenizer_encode(tokenizer, prompt, strlen(prompt), AG_ENCODE_BOS, &ids, &err))
        goto done;
    if (ag_sampler_create(&sampling, (int32_t)ag_model_get_info(model)->n_vocab,
                          &generation.sampler, &err))
        goto done;
    generation.tokenizer = tokenizer;
    generation.on_token = print_text;
    if (ag_session_generate(session, ids.data, ids.n, &generation, &stats, &err)) goto done;
    printf("\n(%zu tokens, finished by %s)\n", stats.n_generated, ag_finish_detail(stats.finish));

done:
    if (err.status)
        fprintf(stderr, "story: %s%s\n", err.msg,
                err.status == AG_NOT_FOUND ? "; usage: story MODEL_DIR [TEXT]" : "");
    ag_sampler_destroy(generation.sampler);
    ag_ids_free(&ids);
    ag_session_destroy(session);
    ag_tokenizer_destroy(tokenizer);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return err.status ? 1 : 0;
}
