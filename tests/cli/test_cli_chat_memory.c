/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity chat compresses conversations: when it saves them, and when memory is short. */
#include "chat_home.h"

#include <sys/stat.h>

static long size_of_saved(const char *name) {
    char path[160];
    struct stat s;
    snprintf(path, sizeof path, "%s/antigravity/chats/%s.agcache", home, name);
    return stat(path, &s) == 0 ? (long)s.st_size : -1;
}

/* Saves the slots that the model needs to repeat the text, and not fewer when it is saved again. */
static void saves_compressed_conversation(void **state) {
    (void)state;
    char input[4096] = "", command[32];
    for (int i = 0; i < 90; i++) strcat(input, "The fox said that the wood was large. ");
    const size_t n = strlen(input);
    static const char *const names[] = {"whole", "small", "again"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "\n/save %s\n", names[i]);
        strcpy(input + n, command);
        cli_result r =
            i ? CHAT(input, GREEDY, "-q", "-n", "2", "--replay", "0.5", "--replay-keep", "20%")
              : CHAT(input, GREEDY, "-q", "-n", "2");
        assert_code(&r, 0);
        cli_free(&r);
    }
    cli_result r = CHAT("So?\n/save again\n/stats\n", GREEDY, "-n", "2", "--resume", "small",
                        "--replay", "0.5", "--replay-keep", "20%");
    assert_code(&r, 0);
    assert_null(strstr(r.err, "is read again"));
    assert_null(strstr(r.err, ", 0 reused"));
    cli_free(&r);
    const long whole = size_of_saved(names[0]), small = size_of_saved(names[1]);
    const long again = size_of_saved(names[2]);
    assert_true(small > 0 && small < whole / 2);
    assert_true(again > 0.9 * (double)small && again < 1.2 * (double)small);
    r = CHAT("x\n", "-q", "--replay-keep", "20%");
    assert_refused(&r, 2, "--replay-keep needs --replay");
    cli_free(&r);
}

/* Returns 1.5 times the available memory, which causes soft pressure. 0: unknown. */
static unsigned long threshold_mb(void) {
    char line[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && !kib && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %lu", &kib) != 1) kib = 0;
    }
    if (f) fclose(f);
    return kib / 1024 + kib / 2048;
}

/* Runs a chat that exceeds its memory threshold. The memory is read every 100 ms: `pause_ms` passes
 * after each line. Returns false if another program took or freed much memory meanwhile. */
static bool run_short_of_memory(const char *input, const char *share, unsigned pause_ms,
                                cli_result *r) {
    char threshold[32];
    const unsigned long before = threshold_mb();
    snprintf(threshold, sizeof threshold, "%lu", before);
    *r = cli_run(&(cli_setup){
        .args = CLI_ARGS("chat", GREEDY, "-v", "-n", "2", "--memory-threshold-mb", threshold,
                         "--replay", share),
        .input = input,
        .n_input = strlen(input),
        .pause_ms = pause_ms,
    });
    assert_code(r, 0);
    const unsigned long after = threshold_mb();
    return after < before + before / 5 && before < after + after / 5;
}

static bool is_under_hard_pressure(const cli_result *r) {
    return strstr(r->err, ", hard)") || strstr(r->err, ", critical)");
}

/* Without replay soft pressure evicts; with replay the conversation is compressed, once. */
static void compresses_conversation_when_memory_is_short(void **state) {
    (void)state;
    enum { ATTEMPTS = 8, SURE = 5 }; /* SURE: the attempt with 3.2 s, enough for any reader */
    char input[8192] = "";
    for (int i = 0; i < 90; i++) strcat(input, "The fox said that the wood was large. ");
    strcat(input, "\nSo?\nAnd?\n");
    static const char *const shares[] = {"0", "0.5"};
    for (size_t i = 0; i < 2; i++) {
        bool is_right = false, is_steady = false;
        /* A reader that gets no processor in time has more time in the next attempt. */
        for (int attempt = 0; attempt < ATTEMPTS && !is_right; attempt++) {
            cli_result r;
            is_steady = run_short_of_memory(input, shares[i], 100u << attempt, &r) &&
                        !is_under_hard_pressure(&r);
            const char *note = strstr(r.err, "memory is short: ");
            const bool evicted = strstr(r.err, ", soft)");
            is_right = !note == !i && evicted == !i;
            if (note && strstr(note + 1, "memory is short: ")) fail_msg("twice: %s", r.err);
            if (is_steady && !is_right && attempt >= SURE)
                fail_msg("--replay %s: %s", shares[i], r.err);
            cli_free(&r);
        }
        if (is_right) continue;
        print_message("skipped: the free memory of this machine changes too much\n");
        skip();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saves_compressed_conversation),
        cmocka_unit_test(compresses_conversation_when_memory_is_short),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
