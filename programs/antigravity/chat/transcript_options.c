/* SPDX-License-Identifier: Apache-2.0 */
#include "transcript_options.h"

#include "../command.h"
#include "../support/input.h"
#include "../terminal/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OPTION_STRUCT transcript_options

static const option_def defs[] = {
    {.name = "system",
     SETS_TEXT("TEXT", system),
     .aliases = {"--sys", "system-prompt"},
     .help = "the system prompt: instructions before the conversation"},
    {.name = "system-file",
     SETS_NAME("FILE", system_file),
     .aliases = {"--sysf", "system-prompt-file"},
     .help = "the same from a file"},
    {.name = "chat-template",
     SETS_NAME("FILE", template_file),
     .aliases = {"chat-template-file"},
     .help = "a Jinja template that replaces the model's own"},
};

option_group transcript_group(transcript_options *o) { return OPTION_GROUP("Chat", defs, o); }

int transcript_options_check(const transcript_options *o) {
    if (!o->system || !o->system_file) return EXIT_DONE;
    return complain_usage("two system prompts given: --system and --system-file; give one");
}

const char *transcript_options_given(const transcript_options *o) {
    return o->system          ? "system"
           : o->system_file   ? "system-file"
           : o->template_file ? "chat-template"
                              : NULL;
}

int transcript_template_read(const char *path, char **text) {
    size_t len;
    struct stat s;
    *text = NULL;
    const bool is_stdin = !strcmp(path, "-");
    const int missing = is_stdin || stat(path, &s) == 0 ? 0 : errno;
    const bool is_directory = !is_stdin && !missing && S_ISDIR(s.st_mode);
    if (missing != ENOENT && !is_directory) return input_read_text(path, text, &len);
    return complain_failure(
        missing ? "--chat-template: '%s': no such file; it must be a file with a Jinja template"
                : "--chat-template: '%s' is a directory; it must be a file with a Jinja template",
        path);
}

static int read_system(const char *path, char **text) {
    size_t len;
    int code = input_check("system-file", path, NULL);
    if (code == EXIT_DONE) code = input_read_text(path, text, &len);
    while (code == EXIT_DONE && len && (*text)[len - 1] == '\n') (*text)[--len] = '\0';
    return code;
}

int transcript_texts_read(transcript_texts *t, const transcript_options *o) {
    int code = EXIT_DONE;
    if (o->template_file) code = transcript_template_read(o->template_file, &t->jinja);
    if (code == EXIT_DONE && o->system_file) return read_system(o->system_file, &t->system);
    if (code == EXIT_DONE && o->system) {
        t->system = strdup(o->system);
        if (!t->system) return complain_no_memory();
    }
    return code;
}

void transcript_texts_free(transcript_texts *t) {
    free(t->system);
    free(t->jinja);
    *t = (transcript_texts){0};
}
