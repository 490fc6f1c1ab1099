/* SPDX-License-Identifier: Apache-2.0 */
/* Answers a question:  chat MODEL "What is the capital of France?" Renders messages to token ids,
 * and parses the answer while it is generated. */
#include <antigravity/antigravity.h>
#include <stdio.h>

static bool read_answer(void *user, int32_t id, const char *text, size_t len) {
    ag_chat_parser *parser = user;
    ag_chat_delta d;
    if (ag_chat_parser_push(parser, text, len, NULL)) return false;
    if (id < 0 && ag_chat_parser_finish(parser, NULL)) return false; /* the last call */
    while (ag_chat_parser_next(parser, &d)) {
        if (d.kind == AG_CHAT_DELTA_CONTENT) fwrite(d.text, 1, d.len, stdout);
        if (d.kind == AG_CHAT_DELTA_CALL) printf("\n(%s is called with ", d.name);
        if (d.kind == AG_CHAT_DELTA_ARGUMENTS) fwrite(d.text, 1, d.len, stdout);
    }
    return fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "models/demo";
    const char *question = argc > 2 ? argv[2] : "Who are you?";
    ag_sampler_params sampling = ag_sampler_defaults();
    ag_generate_params generation = ag_generate_defaults();
    ag_backend *backend = NULL;
    ag_model *model = NULL;
    ag_tokenizer *tokenizer = NULL;
    ag_session *session = NULL;
    ag_chat_format *format = NULL;
    ag_chat *chat = NULL;
    ag_chat_parser *parser = NULL;
    ag_ids ids = {0};
    ag_generate_stats stats;
    ag_error err = {0};

    if (ag_backend_create(NULL, &backend, &err) ||
        ag_model_load(backend, path, NULL, &model, &err) ||
        ag_tokenizer_load(path, &tokenizer, &err) ||
        ag_session_create(model, NULL, &session, &err) ||
        ag_chat_sampling_load(path, &sampling, NULL, &err) ||
        ag_sampler_create(&sampling, (int32_t)ag_model_get_info(model)->n_vocab,
                          &generation.sampler, &err))
        goto done;
    if (ag_chat_format_load(path, tokenizer, NULL, &format, &err) ||
        ag_chat_create(format, &chat, &err) || ag_chat_add(chat, "user", question, &err) ||
        ag_chat_render(chat, 0, &ids, NULL, &err) || ag_chat_parser_create(chat, &parser, &err))
        goto done;
    generation.tokenizer = tokenizer;
    generation.keep_special = true; /* the parser needs the special tokens */
    generation.stop = ag_chat_format_stops(format, &generation.n_stop);
    generation.on_token = read_answer;
    generation.on_token_user = parser;
    if (ag_session_generate(session, ids.data, ids.n, &generation, &stats, &err)) goto done;
    printf("\n(%zu tokens, finished by %s)\n", stats.n_generated, ag_finish_detail(stats.finish));

done:
    if (err.status)
        fprintf(stderr, "chat: %s%s\n", err.msg,
                err.status == AG_NOT_FOUND ? "; usage: chat MODEL [QUESTION]" : "");
    ag_chat_parser_destroy(parser);
    ag_chat_destroy(chat);
    ag_chat_format_destroy(format);
    ag_sampler_destroy(generation.sampler);
    ag_ids_free(&ids);
    ag_session_destroy(session);
    ag_tokenizer_destroy(tokenizer);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return err.status ? 1 : 0;
}
