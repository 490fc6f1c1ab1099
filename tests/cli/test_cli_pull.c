/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity pull with a server that imitates a hub and its faults. */
#include "../../programs/antigravity/support/sha256.h"
#include "cli.h"
#include "hub_server.h"
#include "pull_store.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BIG = 3 << 20, SMALL = 50000, MAX_OBJECTS = 40, N_SHARDS = 9 };
#define SHARDED AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"
#define TOKEN "hf_confidential"

static unsigned char big[BIG], *small_file = big; /* the first bytes of `big` */
static char evil_index[] = "{\"weight_map\":{\"w\":\"../../evil.safetensors\"}}";
static char page[] = "<html>please log in</html>";
static hub_object objects[MAX_OBJECTS];
static size_t n_objects;
static int port;
static char url[256];

/* ---- the server's files ---- */

static const char *hash_of(const void *data, size_t n) {
    char *hex = malloc(SHA256_HEX);
    sha256 s;
    assert_non_null(hex);
    sha256_begin(&s);
    sha256_add(&s, data, n);
    sha256_hex(&s, hex);
    return hex;
}

static void add_object(const char *repo, const char *path, const void *data, size_t n,
                       const char *hash) {
    assert_true(n_objects < MAX_OBJECTS);
    objects[n_objects++] = (hub_object){repo, path, data, n, hash};
}

/* Adds a file of a directory, with a hash if it is large. */
static void add_disk_file(const char *repo, const char *dir, const char *name) {
    char path[512];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &s), 0);
    char *data = malloc((size_t)s.st_size);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)s.st_size, f), s.st_size);
    fclose(f);
    const bool large = s.st_size > 10000;
    add_object(repo, strdup(name), data, (size_t)s.st_size,
               large ? hash_of(data, (size_t)s.st_size) : NULL);
}

static void make_objects(void) {
    uint64_t x = 88172645463325252;
    for (size_t i = 0; i < BIG; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        big[i] = (unsigned char)x;
    }
    memcpy(big, "GGUF", 4);
    const char *hash = hash_of(small_file, SMALL);
    add_object("org/gguf", "README.md", page, 5, NULL);
    add_object("org/gguf", "mmproj-Tiny-Q4_K_M.gguf", small_file, SMALL, hash);
    add_object("org/gguf", "Tiny-Q8_0.gguf", small_file, SMALL - 1, hash_of(small_file, SMALL - 1));
    add_object("org/gguf", "Tiny-Q4_K_M.gguf", small_file, SMALL, hash);
    add_object("org/gguf", "Tiny-BF16.gguf", small_file, 600, hash_of(small_file, 600));
    add_object("org/gguf", "Tiny-F16.gguf", small_file, 500, hash_of(small_file, 500));
    add_object("org/gguf", "sub/Tiny-Q2_K-00001-of-00002.gguf", small_file, 400,
               hash_of(small_file, 400));
    add_object("org/gguf", "sub/Tiny-Q2_K-00002-of-00002.gguf", small_file, 300,
               hash_of(small_file, 300));
    add_object("org/other", "Tiny-Q4_K_M.gguf", small_file, SMALL - 2,
               hash_of(small_file, SMALL - 2));
    add_object("org/first", "Only.gguf", small_file, SMALL, hash);
    add_object("org/big", "Big.gguf", big, BIG, hash_of(big, BIG));
    add_object("org/wrong", "Wrong.gguf", small_file, SMALL, hash_of(small_file, SMALL - 1));
    add_object("org/page", "Page.gguf", page, sizeof page, hash_of(page, sizeof page));
    add_object("org/none", "pytorch_model.bin", page, sizeof page, NULL);
    add_object("org/huge", "Huge.gguf", big, (size_t)1 << 47, hash);
    add_object("org/evil", "../../evil.gguf", small_file, SMALL, hash);
    add_object("org/evil2", "config.json", page, 2, NULL);
    add_object("org/evil2", "model.safetensors.index.json", evil_index, sizeof evil_index - 1,
               NULL);
    const char *whole[] = {"config.json", "generation_config.json", "model.safetensors"};
    for (size_t i = 0; i < 3; i++) add_disk_file("org/tiny", TINY, whole[i]);
    add_disk_file("org/shards", SHARDED, "config.json");
    add_disk_file("org/shards", SHARDED, "model.safetensors.index.json");
    for (int i = 1; i <= N_SHARDS; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i, N_SHARDS);
        add_disk_file("org/shards", SHARDED, name);
    }
}

/* ---- the store ---- */

static void begin_again(void) {
    empty_store();
    hub_fault = (hub_faults){.cut_after = 0};
    hub_forget();
}

static int before_each(void **state) {
    (void)state;
    begin_again();
    unsetenv("HF_TOKEN");
    return 0;
}

static size_t n_in_store(void) {
    size_t n = 0;
    DIR *d = opendir(store);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

#define PULL(...) CLI("pull", "--retry-delay", "0.01", __VA_ARGS__)

/* Returns the URL of a path on a host that is not the hub. */
static const char *at(const char *path) {
    snprintf(url, sizeof url, "http://localhost:%d%s", port, path);
    return url;
}

static void assert_pulls(const char *source, const char *file, const void *data, size_t n) {
    cli_result r = PULL(source);
    assert_code(&r, 0);
    assert_says(r.out, in_store(file));
    assert_file_is(file, data, n);
    cli_free(&r);
}

/* Asserts one line of error and an empty store. */
static void assert_fails(const char *source, int code, const char *part) {
    cli_result r = PULL(source, "--retries", "0");
    assert_refused(&r, code, part);
    assert_int_equal(n_in_store(), 0);
    cli_free(&r);
}

/* ---- tests ---- */

static void hashes_equal_standard_vectors(void **state) {
    (void)state;
    const char *hex = hash_of("abc", 3);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    free((void *)(uintptr_t)hex);
    hex = hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    free((void *)(uintptr_t)hex);
}

static void chooses_file_by_quantisation(void **state) {
    (void)state;
    assert_pulls("org/gguf", "Tiny-Q4_K_M.gguf", small_file, SMALL);
    assert_pulls("org/gguf:q8_0", "Tiny-Q8_0.gguf", small_file, SMALL - 1);
    assert_pulls("org/gguf:F16", "Tiny-F16.gguf", small_file, 500);
    assert_pulls("hf.co/org/gguf:Tiny-BF16.gguf@v2/x", "Tiny-BF16.gguf", small_file, 600);
    assert_pulls("org/first@main", "Only.gguf", small_file, SMALL);
    cli_result r = PULL("org/gguf:Q5_K_M");
    assert_refused(&r, 1, "no GGUF file 'Q5_K_M'; it has Tiny-Q8_0.gguf, Tiny-Q4_K_M.gguf");
    cli_free(&r);
    assert_does_not_say(hub_log(), "mmproj");
}

static void stores_shards_in_directory(void **state) {
    (void)state;
    cli_result r = PULL("org/gguf:q2_k");
    assert_code(&r, 0);
    assert_file_is("Tiny-Q2_K/Tiny-Q2_K-00001-of-00002.gguf", small_file, 400);
    assert_file_is("Tiny-Q2_K/Tiny-Q2_K-00002-of-00002.gguf", small_file, 300);
    assert_int_equal(n_in_store(), 1);
    cli_free(&r);
}

static void fetches_directory_and_finds_it_by_name(void **state) {
    (void)state;
    cli_result r = PULL("org/shards", "--name", "Shards-1M");
    assert_code(&r, 0);
    assert_int_equal(n_in_store(), 1);
    assert_false(is_there("Shards-1M/.pull.json"));
    cli_result info = CLI("info", "-m", "shards");
    assert_code(&info, 0);
    assert_says(info.out, "Shards-1M\n");
    assert_says(info.out, "0.78 M, bf16");
    cli_free(&r);
    cli_free(&info);
    assert_pulls("org/tiny", "tiny", NULL, 0);
}

static void checks_existing_model_without_fetching(void **state) {
    (void)state;
    assert_pulls("org/gguf", "Tiny-Q4_K_M.gguf", small_file, SMALL);
    const size_t sent = hub_bytes_sent();
    cli_result r = PULL("org/gguf");
    assert_code(&r, 0);
    assert_says(r.err, "already in the store");
    assert_int_equal(hub_bytes_sent(), sent);
    cli_free(&r);
    r = PULL("org/other");
    assert_refused(&r, 1, "another model of that name exists; choose a name with --name");
    cli_free(&r);
    assert_file_is("Tiny-Q4_K_M.gguf", small_file, SMALL);
    r = PULL("org/tiny", "--name", "Tiny-Q4_K_M");
    assert_refused(&r, 1, "another model of that name");
    cli_free(&r);
    assert_int_equal(n_in_store(), 1);
    FILE *f = fopen(in_store("Tiny-Q4_K_M.gguf"), "r+b");
    assert_non_null(f);
    fputc('X', f);
    fclose(f);
    r = PULL("org/gguf");
    assert_refused(&r, 1, "another model of that name");
    cli_free(&r);
}

static void sends_token_only_to_its_host(void **state) {
    (void)state;
    hub_fault.token = TOKEN;
    assert_fails("org/gguf", 1, "HTTP 401: access denied");
    setenv("HF_TOKEN", TOKEN "\n", 1);
    hub_forget();
    cli_result r = PULL("org/gguf", "--retries", "0");
    assert_code(&r, 0);
    assert_does_not_say(r.err, TOKEN);
    assert_says(hub_log(), "token=Bearer " TOKEN);
    assert_says(hub_log(), "GET localhost:");
    for (const char *line = strstr(hub_log(), "GET localhost:"); line;
         line = strstr(line + 1, "GET localhost:"))
        assert_int_equal(strncmp(strstr(line, "token="), "token=\n", 7), 0);
    cli_free(&r);
    /* The token is not sent to a URL's host. Errors do not show the query. */
    hub_forget();
    r = PULL(at("/status/403?key=confidential"), "--name", "x");
    assert_refused(&r, 1, "HTTP 403: access denied");
    assert_does_not_say(r.err, "confidential");
    assert_does_not_say(hub_log(), TOKEN);
    cli_free(&r);
    setenv("HF_TOKEN", "two words", 1);
    r = PULL("org/gguf");
    assert_refused(&r, 2, "HF_TOKEN: invalid token");
    cli_free(&r);
}

static void reports_error_responses(void **state) {
    (void)state;
    static const struct {
        const char *path, *part;
    } rows[] = {
        {"/status/403", "HTTP 403: access denied"},
        {"/status/404", "HTTP 404: not found"},
        {"/status/416", "HTTP 416"},
        {"/status/418", "HTTP 418"},
        {"/status/429", "HTTP 429: too many requests (after 1 attempts)"},
        {"/status/500", "HTTP 500"},
        {"/status/301", "HTTP 301"},
        {"/loop", "redirects more than 10 times"},
        {"/elsewhere", "redirects to ftp://127.0.0.1/x.gguf, which is not http or https"},
        {"/page", "not a GGUF file: it begins with '<htm'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_fails(at(rows[i].path), 1, rows[i].part);
    size_t n_loops = 0;
    for (const char *line = hub_log(); (line = strstr(line, " /loop")); line++) n_loops++;
    assert_int_equal(n_loops, 11);
    assert_fails("org/unknown", 1, "(Repository not found)");
    assert_fails("org/gguf@v3", 1, "(Invalid rev id)");
    assert_fails("org/none", 1, "has neither GGUF files nor config.json");
    assert_fails("org/huge", 1, "140737488355328 bytes (128.00 TiB) needed, ");
    assert_fails("org/wrong", 1, "its SHA-256 is ");
    assert_fails("org/page", 1, "not a GGUF file");
    assert_fails("http://127.0.0.1:1/x.gguf", 1, "connect");
    assert_fails("http://me:secret@127.0.0.1/x.gguf", 2, "must not hold a user name");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/plain/nothing.gguf", port);
    assert_fails(url, 1, "nothing.gguf: HTTP 404");
    assert_fails("nothing", 2, "neither a URL nor a repository");
}

static void rejects_names_that_leave_the_store(void **state) {
    (void)state;
    assert_fails("org/evil", 1, "rfilename must not hold the parts '', '.' or '..'");
    assert_fails("org/evil2", 1, "weight_map: the repository has no file '../../evil.safetensors'");
    const char *names[] = {"../x", ".x", "-x", "a/b", "x.part", "x y"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char option[32];
        snprintf(option, sizeof option, "--name=%s", names[i]);
        cli_result r = PULL("org/gguf", option);
        assert_refused(&r, 2, "--name: ");
        cli_free(&r);
    }
    assert_int_equal(n_in_store(), 0);
}

static void retries_busy_server(void **state) {
    (void)state;
    hub_fault.busy = 3;
    cli_result r = PULL("org/gguf");
    assert_code(&r, 0);
    assert_says(r.err, "HTTP 503: the server is busy or down; retrying in 0.01 s");
    assert_file_is("Tiny-Q4_K_M.gguf", small_file, SMALL);
    cli_free(&r);
    begin_again();
    hub_fault.busy = 100;
    r = PULL("org/gguf", "--retries", "2", "-q");
    assert_refused(&r, 1, "(after 3 attempts)");
    cli_free(&r);
    assert_int_equal(100 - hub_fault.busy, 3);
}

static void resumes_broken_connection(void **state) {
    (void)state;
    const char *sources[] = {"org/big", "/plain/Big.gguf"};
    for (size_t i = 0; i < 2; i++) {
        begin_again();
        /* A URL has one more request, which reads only the headers. */
        hub_fault = (hub_faults){.cut_after = 1000000, .cuts = i ? 3 : 2};
        cli_result r = PULL(i ? at(sources[i]) : sources[i]);
        assert_code(&r, 0);
        assert_says(r.err, "retrying");
        assert_file_is("Big.gguf", big, BIG);
        assert_says(hub_log(), "range=bytes=1000000-");
        assert_says(hub_log(), "range=bytes=2000000-");
        cli_free(&r);
    }
    /* A body without Content-Length ends early. */
    begin_again();
    hub_fault = (hub_faults){.cut_after = 1000000, .cuts = 1, .no_length = true};
    assert_pulls("org/big", "Big.gguf", big, BIG);
    assert_says(hub_log(), "range=bytes=1000000-");
    /* Without retries the part stays, and another process continues it. */
    begin_again();
    hub_fault = (hub_faults){.cut_after = 1000000, .cuts = 1};
    cli_result r = PULL("org/big", "--retries", "0");
    assert_refused(&r, 1, "976.56 KiB are kept, and the same command resumes");
    cli_free(&r);
    assert_false(is_there("Big.gguf"));
    assert_true(is_there("Big.part/model.gguf.part"));
    hub_forget();
    assert_pulls("org/big", "Big.gguf", big, BIG);
    assert_int_equal(hub_bytes_sent(), BIG - 1000000);
    assert_int_equal(n_in_store(), 1);
}

static void restarts_when_ranges_are_unsupported(void **state) {
    (void)state;
    hub_fault = (hub_faults){.cut_after = 1000000, .cuts = 1, .no_ranges = true};
    assert_pulls("org/big", "Big.gguf", big, BIG);
    assert_int_equal(hub_bytes_sent(), BIG + 1000000);
    begin_again();
    hub_fault = (hub_faults){.cut_after = 1000000, .cuts = 1, .unsatisfiable = true};
    assert_pulls("org/big", "Big.gguf", big, BIG);
}

static void keeps_versions_apart(void **state) {
    (void)state;
    /* The first half is of one version; then the server has another one of the same size. */
    hub_fault = (hub_faults){.cut_after = 1000000, .cuts = 2};
    cli_result r = PULL(at("/plain/Big.gguf"), "--retries", "0");
    assert_code(&r, 1);
    cli_free(&r);
    big[0xf00] ^= 1;
    hub_fault = (hub_faults){.etag = "\"two\""};
    hub_forget();
    assert_pulls(at("/plain/Big.gguf"), "Big.gguf", big, BIG);
    assert_does_not_say(hub_log(), "range=bytes");
    /* The file changes between two attempts. */
    begin_again();
    hub_fault = (hub_faults){.cut_after = 1000000, .cuts = 2, .etag = "\"two\"", .old_etags = 2};
    assert_pulls(at("/plain/Big.gguf"), "Big.gguf", big, BIG);
    assert_says(hub_log(), "range=bytes=1000000- if=\"one\"");
    /* The server gives no ETag: the pull starts again. */
    begin_again();
    hub_fault = (hub_faults){.cut_after = 1000000, .cuts = 2};
    r = PULL(at("/weak/Big.gguf"), "--retries", "0");
    assert_code(&r, 1);
    cli_free(&r);
    hub_forget();
    assert_pulls(at("/weak/Big.gguf"), "Big.gguf", big, BIG);
    assert_does_not_say(hub_log(), "range=bytes");
    big[0xf00] ^= 1;
}

static void checks_given_hash(void **state) {
    (void)state;
    const char *right = hash_of(small_file, SMALL), *wrong = hash_of("", 0);
    cli_result r = PULL(at("/plain/Only.gguf"), "--sha256", wrong);
    assert_refused(&r, 1, wrong);
    cli_free(&r);
    assert_int_equal(n_in_store(), 0);
    r = PULL(at("/plain/Only.gguf"), "--sha256", right, "-q");
    assert_code(&r, 0);
    assert_int_equal(r.n_err, 0);
    cli_free(&r);
    r = PULL("org/tiny", "--sha256", right);
    assert_refused(&r, 2, "--sha256 needs a single file");
    cli_free(&r);
    r = PULL("org/gguf", "--sha256", "12");
    assert_refused(&r, 2, "64 hexadecimal digits");
    cli_free(&r);
    free((void *)(uintptr_t)right);
    free((void *)(uintptr_t)wrong);
}

static void ctrl_c_keeps_partial_file(void **state) {
    (void)state;
    hub_fault.pause_every = 4096;
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS("pull", "org/big"),
                                        .terminal_errors = true,
                                        .interrupt_after_errors = 400});
    assert_code(&r, 130);
    assert_says(r.err, "##");
    assert_says(r.err, "interrupted; ");
    assert_says(r.err, "are kept");
    cli_free(&r);
    assert_false(is_there("Big.gguf"));
    hub_fault.pause_every = 0;
    hub_forget();
    assert_pulls("org/big", "Big.gguf", big, BIG);
    assert_says(hub_log(), "range=bytes=");
}

static void full_disk_keeps_partial_file(void **state) {
    (void)state;
    struct rlimit before, little;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    cli_result r = PULL("org/big");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_refused(&r, 1, "writing failed: File too large; 1.00 MiB are kept");
    cli_free(&r);
    assert_false(is_there("Big.gguf"));
    hub_forget();
    assert_pulls("org/big", "Big.gguf", big, BIG);
    assert_int_equal(hub_bytes_sent(), BIG - (1 << 20));
}

/* ---- processes in the background ---- */

static pid_t start_pull(const char *source) {
    const char *const argv[] = {AG_PROGRAM, "pull", "-q", "--retry-delay", "0.01", source, NULL};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout)) _exit(126);
        execv(AG_PROGRAM, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

static int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void concurrent_pulls_fetch_once(void **state) {
    (void)state;
    hub_fault.pause_every = 50000;
    pid_t a = start_pull("org/big"), b = start_pull("org/big"), c = start_pull("org/shards"),
          d = start_pull("org/shards");
    assert_int_equal(wait_for(a), 0);
    assert_int_equal(wait_for(b), 0);
    assert_int_equal(wait_for(c), 0);
    assert_int_equal(wait_for(d), 0);
    assert_file_is("Big.gguf", big, BIG);
    assert_int_equal(n_in_store(), 2);
    size_t all = BIG;
    for (size_t i = 0; i < n_objects; i++)
        if (!strcmp(objects[i].repo, "org/shards")) all += objects[i].n;
    /* Each process reads the index, to find the shards; one stores it. */
    assert_in_range(hub_bytes_sent(), all, all + 100000);
}

/* After a killed process the final name has the entire file, or does not exist. */
static void assert_whole_or_part(void) {
    if (is_there("Big.gguf")) assert_file_is("Big.gguf", big, BIG);
    DIR *d = opendir(store);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        const bool known =
            e->d_name[0] == '.' || !strcmp(e->d_name, "Big.gguf") || !strcmp(e->d_name, "Big.part");
        if (!known) fail_msg("%s was left", e->d_name);
    }
    closedir(d);
}

static void resumes_after_kill_at_any_point(void **state) {
    (void)state;
    srand(7);
    size_t resumed = 0;
    for (int i = 0; i < 20; i++) {
        hub_forget();
        hub_fault.kill_after = (size_t)rand() % (BIG / 4) + 1;
        hub_fault.victim = 0;
        hub_fault.pause_every = 100000;
        pid_t pid = start_pull("org/big");
        hub_fault.victim = pid;
        (void)wait_for(pid);
        hub_fault.victim = 0;
        resumed += strstr(hub_log(), "range=bytes=") != NULL;
        assert_whole_or_part();
        if (is_there("Big.gguf")) begin_again();
    }
    assert_true(resumed >= 10);
    hub_fault = (hub_faults){.cut_after = 0};
    /* The process is killed at a random time, also during its start and its end. */
    for (int i = 0; i < 20; i++) {
        pid_t pid = start_pull("org/big");
        const struct timespec pause = {.tv_nsec = rand() % 60 * 1000000L};
        nanosleep(&pause, NULL);
        kill(pid, SIGKILL);
        (void)wait_for(pid);
        assert_whole_or_part();
        if (is_there("Big.gguf") && rand() % 2) begin_again();
    }
    assert_pulls("org/big", "Big.gguf", big, BIG);
    assert_int_equal(n_in_store(), 1);
}

static void directory_appears_only_when_complete(void **state) {
    (void)state;
    srand(11);
    for (int i = 0; i < 10; i++) {
        hub_fault = (hub_faults){.pause_every = 20000};
        hub_forget();
        hub_fault.kill_after = (size_t)rand() % 300000 + 1;
        pid_t pid = start_pull("org/shards");
        hub_fault.victim = pid;
        (void)wait_for(pid);
        hub_fault.victim = 0;
        if (!is_there("shards")) continue;
        break;
    }
    hub_fault = (hub_faults){.cut_after = 0};
    cli_result r = PULL("org/shards");
    assert_code(&r, 0);
    cli_free(&r);
    r = CLI("info", "-m", "shards");
    assert_code(&r, 0);
    cli_free(&r);
    assert_int_equal(n_in_store(), 1);
}

static int prepare(void **state) {
    (void)state;
    make_objects();
    port = hub_start(objects, n_objects);
    make_directory(store);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d/", port);
    setenv("HF_ENDPOINT", endpoint, 1);
    setenv("ANTIGRAVITY_MODELS", store, 1);
    setenv("no_proxy", "*", 1);
    unsetenv("HF_TOKEN");
    return 0;
}

static int clean_up(void **state) {
    (void)state;
    remove_store();
    return 0;
}

static void reports_missing_libcurl(void **state) {
    (void)state;
    setenv("AG_CURL_LIBRARY", "/nowhere/libcurl.so", 1);
    assert_fails("org/gguf", 1, "AG_CURL_LIBRARY: /nowhere/libcurl.so");
    unsetenv("AG_CURL_LIBRARY");
}

#define EACH(test) cmocka_unit_test_setup(test, before_each)

int main(void) {
    if (lacks_libcurl()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_equal_standard_vectors),
        EACH(chooses_file_by_quantisation),
        EACH(stores_shards_in_directory),
        EACH(fetches_directory_and_finds_it_by_name),
        EACH(checks_existing_model_without_fetching),
        EACH(sends_token_only_to_its_host),
        EACH(reports_error_responses),
        EACH(rejects_names_that_leave_the_store),
        EACH(retries_busy_server),
        EACH(resumes_broken_connection),
        EACH(restarts_when_ranges_are_unsupported),
        EACH(keeps_versions_apart),
        EACH(checks_given_hash),
        EACH(ctrl_c_keeps_partial_file),
        EACH(full_disk_keeps_partial_file),
        EACH(concurrent_pulls_fetch_once),
        EACH(resumes_after_kill_at_any_point),
        EACH(directory_appears_only_when_complete),
        EACH(reports_missing_libcurl),
    };
    return cmocka_run_group_tests_name("cli pull", tests, prepare, clean_up);
}
