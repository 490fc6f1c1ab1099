/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix files: found after a restart by their scope only, and checked before use. */
#include "serving/serving_impl.h"
#include "support/serving_demo.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN AG_GOLDEN_MODELS "/"
#define WHOLE_DEMO AG_SOURCE_DIR "/models/demo"
/* The first model has no windows; most layers of the second have a state. */
static const char *const paths[] = {DEMO, GOLDEN "lfm2"};
enum { N_MODELS = 2 };

static char root[] = "/tmp/ag-serving-files-XXXXXX", dir[64];
static ag_served_model *models[N_MODELS];

static ag_serving_params in_dir(void) {
    ag_serving_params p = ag_serving_defaults();
    p.prefix_dir = dir;
    return p;
}

static void begin(const ag_serving_params *p) {
    start_engine(p);
    for (size_t i = 0; i < N_MODELS; i++) {
        char name[16];
        snprintf(name, sizeof name, "model-%zu", i);
        models[i] = add_model(name, paths[i]);
    }
}

static void end(void) { stop(NULL); }

/* Calls fn for every file. Returns the number of files. */
static size_t each_file(void (*fn)(const char *path)) {
    size_t n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[400];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (fn) fn(path);
        n++;
    }
    if (d) closedir(d);
    return n;
}

/* The file thread writes them asynchronously. */
static void wait_for_files(size_t n) {
    for (int i = 0; i < 6000 && each_file(NULL) != n; i++) usleep(5000);
    assert_int_equal(each_file(NULL), n);
}

static void wait_for_failures(uint64_t n) {
    ag_serving_stats stats = {.n_prefix_failed = 0};
    for (int i = 0; i < 6000 && stats.n_prefix_failed != n; i++) {
        ag_request_params p =
            ag_request_defaults(models[0]); /* statistics are published with events */
        const int32_t id = 20;
        p.prompt = &id;
        p.n_prompt = 1;
        p.max_tokens = 1;
        p.no_prefix = true;
        run_request(&clients[0], &p);
        ag_serving_get_stats(serving, &stats);
    }
    assert_int_equal(stats.n_prefix_failed, n);
}

static void remove_path(const char *path) { unlink(path); }

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/ag-serving-files-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(dir, sizeof dir, "%s/parked", root);
    return 0;
}

static int remove_root(void **state) {
    (void)state;
    end();
    each_file(remove_path);
    rmdir(dir);
    unlink(dir);
    return rmdir(root);
}

/* Returns the cached tokens of a turn. The answer becomes part of the conversation. */
static size_t turn(talk *t, size_t model, const char *scope) {
    ag_request_params p = ag_request_defaults(models[model]);
    p.prompt = t->ids;
    p.n_prompt = t->n;
    p.scope = scope;
    p.max_tokens = 6;
    p.ignore_eos = true;
    p.sampling.temperature = 0;
    run_request(&clients[0], &p);
    hear(t, &clients[0].answers[0]);
    return clients[0].n_cached;
}

static void is_private(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void conversation_continues_after_its_model_was_freed(void **state) {
    ag_serving_params p = in_dir();
    (void)state;
    begin(&p);
    talk t = {.seed = 6};
    say(&t, 200);
    assert_int_equal(turn(&t, 0, "a"), 0);
    ag_serving_keep_alive(serving, models[0], 0);
    for (int i = 0; i < 6000 && ag_served_model_is_loaded(models[0]); i++) usleep(5000);
    assert_false(ag_served_model_is_loaded(models[0]));
    wait_for_files(2); /* description and session */
    say(&t, 4);
    assert_true(turn(&t, 0, "a") >= 200);
}

static void conversation_continues_after_a_restart(void **state) {
    ag_serving_params p = in_dir();
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        talk t = {.seed = 1}, same;
        begin(&p);
        say(&t, 300);
        assert_int_equal(turn(&t, m, "anna"), 0);
        const size_t before = t.n;
        say(&t, 9);
        same = t;
        end();
        begin(&p);
        assert_int_equal(turn(&t, m, "anna"), before - 1);
        end();
        /* The tokens equal those without a restart. */
        ag_serving_params q = ag_serving_defaults();
        begin(&q);
        same.n = 300;
        turn(&same, m, "anna");
        say(&same, 9);
        same.seed = 0;
        memcpy(same.ids, t.ids, before * sizeof *same.ids);
        memcpy(same.ids + before, t.ids + before, 9 * sizeof *same.ids);
        same.n = before + 9;
        assert_int_equal(turn(&same, m, "anna"), before - 1);
        assert_int_equal(same.n, t.n);
        assert_memory_equal(same.ids, t.ids, t.n * sizeof *t.ids);
        end();
    }
    struct stat st;
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(each_file(is_private) >= 4);
}

static void files_are_used_only_by_their_scope(void **state) {
    ag_serving_params p = in_dir();
    talk t = {.seed = 2}, other;
    (void)state;
    begin(&p);
    say(&t, 200);
    other = t;
    turn(&t, 0, "anna");
    end();
    begin(&p);
    talk again = other;
    assert_int_equal(turn(&again, 0, "bert"), 0);
    again = other;
    assert_int_equal(turn(&again, 0, NULL), 0);
    again = other;
    assert_int_equal(turn(&again, 0, "anna"), 199);
}

/* Runs two turns, with or without a restart between them. Checks the second answer. */
static void two_turns(const char *policy, ag_head_budget heads, bool restarts, client_answer *out) {
    ag_serving_params p = in_dir();
    talk t = {.seed = 12};
    begin(&p);
    for (size_t i = 0; i < 2; i++) {
        say(&t, i ? 20 : 300);
        ag_request_params q = ag_request_defaults(models[0]);
        q.prompt = t.ids;
        q.n_prompt = t.n;
        q.max_tokens = 12;
        q.ignore_eos = q.logprobs = true;
        q.sampling.temperature = 0;
        q.session.eviction.policy = ag_eviction_policy_find(policy);
        q.session.eviction.budget_tokens = 100;
        q.session.eviction.head_budget = heads;
        run_request(&clients[0], &q);
        const size_t n_cached = i ? t.n - 20 - 1 : 0;
        if (clients[0].n_cached != n_cached)
            fail_msg("%s: %zu of %zu tokens were there", policy, clients[0].n_cached, n_cached);
        hear(&t, &clients[0].answers[0]);
        if (i || !restarts) continue;
        end();
        begin(&p);
    }
    *out = clients[0].answers[0];
    end();
    each_file(remove_path);
}

static void evicted_session_continues_after_a_restart(void **state) {
    static client_answer with, without;
    const ag_eviction_policy *policy;
    size_t n = 0;
    (void)state;
    for (; (policy = ag_eviction_policy_at(n)); n++) {
        if (!policy->select) continue;
        two_turns(policy->name, AG_HEAD_BUDGET_EVEN, false, &without);
        two_turns(policy->name, AG_HEAD_BUDGET_EVEN, true, &with);
        same_answer(&with, &without, n);
    }
    assert_true(n > 4);
    two_turns("keydiff", AG_HEAD_BUDGET_ADAPTIVE, false, &without);
    two_turns("keydiff", AG_HEAD_BUDGET_ADAPTIVE, true, &with);
    same_answer(&with, &without, n);
}

/* An entry that is evicted at once is reloaded from its file. */
static void session_evicted_from_memory_is_reloaded(void **state) {
    ag_serving_params p = in_dir();
    talk t = {.seed = 3};
    (void)state;
    p.prefix_bytes = 0;
    begin(&p);
    say(&t, 200);
    turn(&t, 0, NULL);
    wait_for_files(2);
    const size_t before = t.n;
    say(&t, 5);
    assert_int_equal(turn(&t, 0, NULL), before - 1);
    end();
    /* The new file covers the old one. */
    assert_int_equal(each_file(NULL), 2);
}

static uint64_t n_bytes;

static void add_bytes(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0) n_bytes += (uint64_t)st.st_size;
}

/* Writes a session of the first model. Returns the bytes of one and a half such. */
static uint64_t write_session(talk *t, unsigned n) {
    const ag_serving_params p = in_dir();
    begin(&p);
    say(t, n);
    turn(t, 0, NULL);
    end();
    assert_int_equal(each_file(NULL), 2);
    n_bytes = 0;
    each_file(add_bytes);
    return n_bytes * 3 / 2;
}

static void enforces_the_directory_limit(void **state) {
    ag_serving_params p = in_dir();
    talk first = {.seed = 4}, last = {.seed = 5};
    (void)state;
    p.prefix_dir_bytes = write_session(&first, 200);
    begin(&p);
    say(&last, 200);
    const size_t n = last.n;
    turn(&last, 0, NULL);
    end();
    assert_int_equal(each_file(NULL), 2);
    begin(&p);
    assert_int_equal(turn(&first, 0, NULL), 0);
    assert_true(turn(&last, 0, NULL) >= n);
}

/* ---- hostile files ---- */

static const char *wanted_end;

static void damage(const char *path) {
    if (!strstr(path, wanted_end)) return;
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    const int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, st.st_size / 2), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size / 2), 1);
    close(fd);
}

static void replace_by_link(const char *path) {
    char elsewhere[128];
    struct stat st;
    if (!strstr(path, wanted_end) || lstat(path, &st) != 0 || S_ISLNK(st.st_mode)) return;
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", root);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
}

static void assert_ignored(void (*what)(const char *path), const char *end_of_name) {
    ag_serving_params p = in_dir();
    talk t = {.seed = 6};
    char elsewhere[128];
    begin(&p);
    say(&t, 200);
    talk again = t;
    turn(&t, 0, "anna");
    end();
    assert_int_equal(each_file(NULL), 2);
    wanted_end = end_of_name;
    each_file(what);
    begin(&p);
    assert_int_equal(turn(&again, 0, "anna"), 0);
    assert_int_equal(again.n, t.n);
    assert_memory_equal(again.ids, t.ids, t.n * sizeof *t.ids);
    end();
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", root);
    unlink(elsewhere);
    each_file(remove_path);
}

static void ignores_damaged_files(void **state) {
    (void)state;
    assert_ignored(damage, ".session");
    assert_ignored(damage, ".prefix");
}

static void does_not_follow_links(void **state) {
    (void)state;
    assert_ignored(replace_by_link, ".session");
    assert_ignored(replace_by_link, ".prefix");
}

static void rejects_a_directory_open_to_others(void **state) {
    ag_serving_params p = in_dir();
    char link[80];
    ag_error err;
    (void)state;
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(chmod(dir, 0750), 0);
    assert_int_equal(ag_serving_create(&p, &serving, &err), AG_IO);
    assert_null(serving);
    assert_non_null(strstr(err.msg, "0700"));
    assert_int_equal(chmod(dir, 0700), 0);
    snprintf(link, sizeof link, "%s/link", root);
    assert_int_equal(symlink(dir, link), 0);
    p.prefix_dir = link;
    assert_int_equal(ag_serving_create(&p, &serving, &err), AG_IO);
    unlink(link);
}

static atomic_size_t n_warnings;

static void count_warning(void *user, ag_log_level level, const char *msg) {
    (void)user, (void)msg;
    n_warnings += level == AG_LOG_WARN;
}

/* Writing fails, as on a full disk. */
static void drops_sessions_that_cannot_be_written(void **state) {
    struct rlimit before, small;
    ag_serving_params p = in_dir();
    talk t = {.seed = 7};
    (void)state;
    n_warnings = 0;
    p.prefix_bytes = 0;
    p.backend.log = count_warning;
    signal(SIGXFSZ, SIG_IGN);
    begin(&p);
    say(&t, 200);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    talk other = t;
    turn(&t, 0, NULL);
    wait_for_failures(1);
    turn(&other, 0, "anna");
    wait_for_failures(2);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(each_file(NULL), 0);
    assert_int_equal(n_warnings, 1); /* one warning suffices */
    say(&t, 5);
    assert_int_equal(turn(&t, 0, NULL), 0);
    wait_for_files(2);
}

/* ---- during disk I/O ---- */

/* A disk that blocks until it is released. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_stuck;
    size_t n_waiting, n;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_for_disk(void *user) {
    (void)user;
    pthread_mutex_lock(&disk.lock);
    disk.n++;
    disk.n_waiting++;
    pthread_cond_broadcast(&disk.changed);
    while (disk.is_stuck) pthread_cond_wait(&disk.changed, &disk.lock);
    disk.n_waiting--;
    pthread_mutex_unlock(&disk.lock);
}

static void set_stuck(bool is_stuck) {
    pthread_mutex_lock(&disk.lock);
    disk.is_stuck = is_stuck;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

static void wait_until_stuck(void) {
    pthread_mutex_lock(&disk.lock);
    while (!disk.n_waiting) pthread_cond_wait(&disk.changed, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
}

/* Neither a write nor a reload delays other requests. */
static void engine_runs_during_disk_io(void **state) {
    ag_serving_params p = in_dir();
    talk t = {.seed = 9}, other = {.seed = 10};
    ag_error err;
    (void)state;
    p.prefix_bytes = 0;
    begin(&p);
    serving->engine_lock.before_disk = wait_for_disk;
    say(&t, 200);
    say(&other, 100);
    talk first = other, second = other;
    set_stuck(true);
    turn(&t, 0, "anna");
    wait_until_stuck();
    assert_int_equal(turn(&first, 0, "bert"), 0);
    set_stuck(false);
    wait_for_files(4);
    end();

    begin(&p);
    serving->engine_lock.before_disk = wait_for_disk;
    set_stuck(true);
    client late;
    client_init(&late);
    say(&t, 5);
    ag_request_params q = ag_request_defaults(models[0]), long_one = q;
    q.prompt = t.ids;
    q.n_prompt = t.n;
    q.scope = "anna";
    q.max_tokens = 4;
    long_one.prompt = second.ids;
    long_one.n_prompt = second.n;
    long_one.scope = "carl";
    long_one.max_tokens = 400;
    long_one.ignore_eos = true;
    client_destroy(&clients[0]);
    client_init(&clients[0]);
    must(client_send(&clients[0], serving, &long_one, &err), &err);
    must(client_send(&late, serving, &q, &err), &err);
    wait_until_stuck(); /* the reload for the second one blocks; the first request is answered */
    assert_true(client_wait(&clients[0]));
    assert_int_equal(clients[0].status, AG_OK);
    assert_int_equal(clients[0].answers[0].n, 400);
    set_stuck(false);
    assert_true(client_wait(&late));
    assert_int_equal(late.status, AG_OK);
    assert_int_equal(late.n_cached, t.n - 5 - 1);
    client_destroy(&late);
}

/* Writes a conversation of 200 ids to a file and blocks the disk. */
static void leave_in_stuck_file(talk *t) {
    const ag_serving_params p = in_dir();
    begin(&p);
    say(t, 200);
    turn(t, 0, NULL);
    end();
    begin(&p);
    serving->engine_lock.before_disk = wait_for_disk;
    set_stuck(true);
}

/* The first client sends the conversation. */
static void send_talk(const talk *t, double deadline_s) {
    ag_request_params q = ag_request_defaults(models[0]);
    q.prompt = t->ids;
    q.n_prompt = t->n;
    q.max_tokens = 1;
    q.deadline_s = deadline_s;
    client_destroy(&clients[0]);
    client_init(&clients[0]);
    send_request(&clients[0], &q);
}

/* A request that is cancelled during its reload ends at once. */
static void cancels_a_request_that_waits_for_a_file(void **state) {
    talk t = {.seed = 11};
    (void)state;
    leave_in_stuck_file(&t);
    say(&t, 5);
    send_talk(&t, 0);
    wait_until_stuck();
    ag_serving_cancel(serving, clients[0].id);
    assert_true(client_wait(&clients[0]));
    assert_int_equal(clients[0].status, AG_CANCELLED);
    set_stuck(false);
    /* The next request finds the prefix that was read. */
    const size_t before = t.n;
    assert_int_equal(turn(&t, 0, NULL), before - 5 - 1);
    ag_serving_stats stats;
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_prefix_read, 1);
}

/* Moves the system clock forward: a wait that used it would end an hour later. */
static atomic_int clock_jump_s;
int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t) {
    const int st = __real_clock_gettime(id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += atomic_load(&clock_jump_s);
    return st;
}

static void deadlines_hold_when_the_clock_is_set(void **state) {
    talk t = {.seed = 15};
    (void)state;
    leave_in_stuck_file(&t);
    atomic_store(&clock_jump_s, 3600);
    send_talk(&t, 0.3);
    assert_true(client_wait(&clients[0]));
    assert_int_equal(clients[0].status, AG_CANCELLED);
    atomic_store(&clock_jump_s, 0);
    set_stuck(false);
}

/* No file descriptor is free for a moment. The file stays. */
static void temporary_error_removes_no_file(void **state) {
    struct rlimit before, none;
    ag_serving_params p = in_dir();
    talk t = {.seed = 8};
    ag_error err;
    (void)state;
    n_warnings = 0;
    p.backend.log = count_warning;
    begin(&p);
    say(&t, 200);
    talk again = t;
    turn(&t, 0, NULL);
    end();
    begin(&p);
    must(ag_serving_load_model(serving, models[0], &err), &err);
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const size_t cached = turn(&again, 0, NULL);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(cached, 0);
    assert_int_equal(n_warnings, 1);
    assert_int_equal(each_file(NULL), 2);
}

/* More sessions are evicted than the disk takes. */
static void bounds_the_bytes_queued_for_writing(void **state) {
    enum { N = 8, MIB = 1 << 20 };
    ag_serving_params p = in_dir();
    ag_serving_stats stats;
    (void)state;
    p.prefix_bytes = MIB;
    start_engine(&p);
    models[0] = add_model("model-0", WHOLE_DEMO); /* with large sessions */
    serving->engine_lock.before_disk = wait_for_disk;
    set_stuck(true);
    for (unsigned i = 0; i < N; i++) {
        talk t = {.seed = 100 + i};
        say(&t, 900);
        turn(&t, 0, NULL);
        if (!i) wait_until_stuck();
    }
    ag_serving_get_stats(serving, &stats);
    assert_true(stats.n_prefix_entries > 1 && stats.n_prefix_entries < N);
    assert_true(stats.prefix_bytes <
                24 * MIB); /* 40 were evicted: one is being written, 16 MiB wait */
    set_stuck(false);
}

/* A process that was killed between its two writes leaves one file. */
static void removes_a_session_without_description(void **state) {
    ag_serving_params p = in_dir();
    talk t = {.seed = 12};
    char path[400];
    (void)state;
    begin(&p);
    say(&t, 100);
    turn(&t, 0, NULL);
    end();
    assert_int_equal(each_file(NULL), 2);
    snprintf(path, sizeof path, "%s/0123456789abcdef.session", dir);
    FILE *lone = fopen(path, "wb");
    assert_non_null(lone);
    fclose(lone);
    begin(&p);
    assert_int_equal(each_file(NULL), 2);
    assert_int_equal(access(path, F_OK), -1);
}

/* A session above the directory's limit does not evict all other files. */
static void does_not_write_a_session_above_the_limit(void **state) {
    ag_serving_params p = in_dir();
    talk t = {.seed = 13}, large = {.seed = 14};
    (void)state;
    p.prefix_dir_bytes = write_session(&t, 100);
    begin(&p);
    say(&large, 900);
    turn(&large, 0, NULL);
    end();
    assert_int_equal(each_file(NULL), 2);
    begin(&p);
    assert_true(turn(&t, 0, NULL) > 50);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)
    const struct CMUnitTest meeting[] = {
        CASE(session_evicted_from_memory_is_reloaded), CASE(drops_sessions_that_cannot_be_written),
        CASE(bounds_the_bytes_queued_for_writing),     CASE(engine_runs_during_disk_io),
        CASE(cancels_a_request_that_waits_for_a_file), CASE(deadlines_hold_when_the_clock_is_set),
    };
    const struct CMUnitTest others[] = {
        CASE(conversation_continues_after_its_model_was_freed),
        CASE(conversation_continues_after_a_restart),
        CASE(evicted_session_continues_after_a_restart),
        CASE(files_are_used_only_by_their_scope),
        CASE(enforces_the_directory_limit),
        CASE(ignores_damaged_files),
        CASE(does_not_follow_links),
        CASE(rejects_a_directory_open_to_others),
        CASE(temporary_error_removes_no_file),
        CASE(removes_a_session_without_description),
        CASE(does_not_write_a_session_above_the_limit),
    };
    const int failed = cmocka_run_group_tests(meeting, NULL, NULL);
#ifdef __SANITIZE_THREAD__ /* only tests in which both threads interact */
    (void)others;
    return failed;
#else
    return failed + cmocka_run_group_tests(others, NULL, NULL);
#endif
}
