/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of pulls whose client disconnects, or for which there is no memory, at the start. The
 * connection, the process and the event loop are fakes. */
#include "cli.h"

#include "../../programs/antigravity/serve/models/management.h"
#include "../../programs/antigravity/serve/models/model_names.h"
#include "../../programs/antigravity/serve/models/pull_request.h"
#include "../../programs/antigravity/serve/ollama/ollama.h"
#include "../../programs/antigravity/serve/protocol/fields.h"
#include "../../programs/antigravity/serve/request/http_request.h"
#include "../../programs/antigravity/serve/system.h"
#include "../../programs/antigravity/serve/threads/account.h"
#include "../../programs/antigravity/terminal/output.h"

#include <signal.h>
#include <unistd.h>

enum { PROCESS = 1234567 };

static served_models models = {.store = "/store"};
static const server_settings settings = {.models = &models};
static server now = {.settings = &settings};
static serve_http_request http;
static bool ends_at_head; /* the connection ends when the reply begins */
static bool ends_at_line; /* ... when a line is sent after the process has ended */
static bool is_running;   /* the process */
static int n_started, n_signals, n_stray, n_released;

/* ---- fakes ---- */

int __wrap_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number) {
    assert_int_equal(number, SIGTERM);
    assert_int_equal(pid, PROCESS);
    if (is_running) n_signals++;
    else n_stray++;
    return 0;
}

static void end_connection(void) {
    http.connection = NULL;
    pull_client_gone(&http);
}

void connection_begin_stream(connection *c, int status, const char *type, const char *headers) {
    (void)c, (void)status, (void)type, (void)headers;
    if (ends_at_head) end_connection();
}

bool connection_stream(connection *c, const char *bytes, size_t n) {
    (void)c, (void)bytes, (void)n;
    if (!ends_at_line || is_running || !n_started) return true;
    end_connection();
    return false;
}

void connection_end_stream(connection *c) { (void)c; }

pid_t __wrap_system_run_self(const char *const *args, const char *variable, int *output);
pid_t __wrap_system_run_self(const char *const *args, const char *variable, int *output) {
    (void)args, (void)variable;
    *output = dup(1);
    n_started++;
    is_running = true;
    return PROCESS;
}

int __wrap_system_wait(pid_t pid);
int __wrap_system_wait(pid_t pid) {
    assert_int_equal(pid, PROCESS);
    is_running = false;
    return 1;
}

/* The loop has no memory for the event. */
struct event *event_new(struct event_base *base, evutil_socket_t fd, short what,
                        event_callback_fn f, void *user) {
    (void)base, (void)fd, (void)what, (void)f, (void)user;
    return NULL;
}

int event_add(struct event *e, const struct timeval *time) {
    (void)e, (void)time;
    return -1;
}

void event_free(struct event *e) { (void)e; }

bool workers_add(workers *w, work_item *item) {
    (void)w, (void)item;
    return false;
}

void http_request_retain(serve_http_request *r) { (void)r; }
void http_request_release(serve_http_request *r) {
    (void)r;
    n_released++;
}
void http_send_reply(serve_http_request *r) { (void)r; }
void http_send_error(serve_http_request *r, const serve_error *e) { (void)r, (void)e; }
void http_reply_error(serve_http_request *r, const serve_error *e) { (void)r, (void)e; }
void http_reply_json(serve_http_request *r, int status, json_t *value) {
    (void)r, (void)status;
    json_decref(value);
}
const json_t *http_body(const serve_http_request *r) { return r->json; }
json_t *ollama_error(const serve_error *e) { return json_pack("{s:s}", "error", e->text); }
bool ollama_read_name(const json_t *body, const char **name, serve_error *e) {
    (void)body, (void)e;
    *name = "org/model";
    return true;
}
bool field_bool(const json_t *object, const char *name, bool *out, serve_error *e) {
    (void)object, (void)name, (void)out, (void)e;
    return true;
}
bool model_name_is_valid(const char *name) { return *name != '\0'; }
const model_entry *model_list_next(const model_list *l, const model_entry *e) {
    (void)l, (void)e;
    return NULL;
}
const model_entry *model_list_find(const model_list *l, const char *name) {
    (void)l, (void)name;
    return NULL;
}
void served_models_refresh(served_models *s, const model_entry *m, const char *path) {
    (void)s, (void)m, (void)path;
}
int served_models_add(served_models *s, const char *path, const char *template_file,
                      double keep_alive_s, const model_entry **out) {
    (void)s, (void)path, (void)template_file, (void)keep_alive_s, (void)out;
    return 1;
}
bool manage_add_alias(served_models *s, const model_entry *of, const char *name, char *reason) {
    (void)s, (void)of, (void)name, (void)reason;
    return true;
}
void complain(const char *fmt, ...) { (void)fmt; }
int complain_no_memory(void) { return 1; }
bool output_write(const char *text, size_t len) {
    (void)text, (void)len;
    return true;
}

/* ---- tests ---- */

static void start(void) {
    static char peer;
    http = (serve_http_request){.server = &now, .connection = (connection *)&peer};
    n_started = n_signals = n_stray = n_released = 0;
    is_running = false;
    manage_pull(&http);
    assert_non_null(http.pull);
    pull_start(&http);
    assert_null(now.pull);
    assert_int_equal(n_released, 1);
}

static void client_that_leaves_at_the_head_starts_no_process(void **state) {
    (void)state;
    ends_at_head = true;
    start();
    ends_at_head = false;
    assert_int_equal(n_started, 0);
}

static void reaped_process_gets_no_signal(void **state) {
    (void)state;
    ends_at_line = true;
    start();
    ends_at_line = false;
    assert_int_equal(n_started, 1);
    assert_int_equal(n_signals, 1);
    assert_int_equal(n_stray, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_that_leaves_at_the_head_starts_no_process),
        cmocka_unit_test(reaped_process_gets_no_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
