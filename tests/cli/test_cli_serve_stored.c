/* SPDX-License-Identifier: Apache-2.0 */
/* Stored responses: they are continued, retrieved and deleted, by their own client only. */
#include "served_group.h"

#include <string.h>
#include <unistd.h>

#define RESPONSES "POST /v1/responses"
#define SHORT "\"model\":\"demo\",\"temperature\":0,\"max_output_tokens\":8"

static json_t *respond(const char *fields) {
    char body[1024];
    snprintf(body, sizeof body, "{" SHORT "%s}", fields);
    return serve_json(&server, RESPONSES, body, 200);
}

static json_t *get_response(const char *id, int status) {
    char line[128];
    snprintf(line, sizeof line, "GET /v1/responses/%s", id);
    return serve_json(&server, line, NULL, status);
}

/* Sends DELETE with the client's headers. Returns the status. */
static int delete_response(const char *id, const char *headers) {
    char line[128];
    snprintf(line, sizeof line, "DELETE /v1/responses/%s", id);
    serve_reply r = serve_fetch(&server, line, headers, NULL);
    const int status = r.status;
    serve_reply_free(&r);
    return status;
}

static void a_stored_conversation_continues(void **state) {
    char fields[256];
    (void)state;
    json_t *first = respond(",\"input\":\"Once upon a time\",\"instructions\":\"A tale.\"");
    assert_true(json_is_true(json_at(first, "store")));
    const char *id = json_string_at(first, "id");
    snprintf(fields, sizeof fields, ",\"input\":\"And then?\",\"previous_response_id\":\"%s\"", id);
    json_t *second = respond(fields);
    assert_string_equal(json_string_at(second, "previous_response_id"), id);
    snprintf(fields, sizeof fields, ",\"input\":\"The end.\",\"previous_response_id\":\"%s\"",
             json_string_at(second, "id"));
    json_t *third = respond(fields);

    /* The same conversation, without the instructions of the first response. */
    json_t *items =
        json_pack("[{ss ss} O {ss ss} O {ss ss}]", "role", "user", "content", "Once upon a time",
                  json_at(first, "output.0"), "role", "user", "content", "And then?",
                  json_at(second, "output.0"), "role", "user", "content", "The end.");
    char *text = json_dumps(items, 0), *body = malloc(strlen(text) + 64);
    sprintf(body, ",\"store\":false,\"input\":%s", text);
    json_t *whole = respond(body);
    assert_string_equal(json_string_at(third, "output.0.content.0.text"),
                        json_string_at(whole, "output.0.content.0.text"));
    assert_int_equal(json_number_at(third, "usage.input_tokens"),
                     json_number_at(whole, "usage.input_tokens"));
    snprintf(fields, sizeof fields,
             "{\"model\":\"demo\",\"input\":\"The end.\",\"previous_response_id\":\"%s\"}",
             json_string_at(second, "id"));
    json_t *count = serve_json(&server, RESPONSES "/input_tokens", fields, 200);
    assert_int_equal(json_number_at(count, "input_tokens"),
                     json_number_at(third, "usage.input_tokens"));
    free(body);
    free(text);
    json_t *const all[] = {first, second, third, items, whole, count};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) json_decref(all[i]);
}

static void a_response_is_retrieved_and_deleted(void **state) {
    char fields[256];
    (void)state;
    json_t *sent = respond(",\"input\":\"Once\",\"metadata\":{\"a\":\"b\"}");
    const char *id = json_string_at(sent, "id");
    json_t *found = get_response(id, 200);
    assert_true(json_equal(found, sent));
    json_decref(found);
    assert_int_equal(delete_response(id, ""), 200);
    assert_int_equal(delete_response(id, ""), 404);
    json_decref(get_response(id, 404));
    snprintf(fields, sizeof fields, "{" SHORT ",\"input\":\"x\",\"previous_response_id\":\"%s\"}",
             id);
    json_t *v = serve_json(&server, RESPONSES, fields, 400);
    assert_string_equal(json_string_at(v, "error.code"), "previous_response_not_found");
    assert_string_equal(json_string_at(v, "error.param"), "previous_response_id");
    json_decref(v);
    json_decref(sent);
}

static void a_client_may_decline_the_store(void **state) {
    (void)state;
    json_t *sent = respond(",\"input\":\"Once\",\"store\":false");
    assert_true(json_is_false(json_at(sent, "store")));
    json_decref(get_response(json_string_at(sent, "id"), 404));
    json_decref(sent);
}

static void a_streamed_response_is_stored(void **state) {
    (void)state;
    serve_reply r =
        serve_fetch(&server, RESPONSES, "", "{" SHORT ",\"input\":\"Once upon\",\"stream\":true}");
    static const char mark[] = "event: response.incomplete\ndata: ";
    const char *last = strstr(r.body, mark);
    assert_non_null(last);
    json_t *event = json_loads(last + strlen(mark), JSON_DISABLE_EOF_CHECK, NULL);
    json_t *found = get_response(json_string_at(event, "response.id"), 200);
    assert_true(json_equal(found, json_at(event, "response")));
    json_decref(found);
    json_decref(event);
    serve_reply_free(&r);
}

static void a_response_belongs_to_its_key(void **state) {
    static const char mine[] = "Authorization: Bearer first\r\n",
                      other[] = "Authorization: Bearer second\r\n";
    char path[] = "/tmp/antigravity-keys-XXXXXX", line[128], body[256];
    const serve_process outer = server;
    (void)state;
    const int fd = mkstemp(path);
    assert_int_equal(write(fd, "first\nsecond\n", 13), 13);
    close(fd);
    SERVE_START(&server, "--api-key-file", path, "--share-prefixes", "-q");
    serve_reply r = serve_fetch(&server, RESPONSES, mine, "{" SHORT ",\"input\":\"Once\"}");
    json_t *sent = json_loads(r.body, 0, NULL);
    const char *id = json_string_at(sent, "id");
    serve_reply_free(&r);
    snprintf(line, sizeof line, "GET /v1/responses/%s", id);
    static const char *const keys[] = {other, mine};
    for (size_t i = 0; i < 2; i++) {
        r = serve_fetch(&server, line, keys[i], NULL);
        assert_int_equal(r.status, i ? 200 : 404);
        serve_reply_free(&r);
        snprintf(body, sizeof body, "{" SHORT ",\"input\":\"x\",\"previous_response_id\":\"%s\"}",
                 id);
        r = serve_fetch(&server, RESPONSES, keys[i], body);
        assert_int_equal(r.status, i ? 200 : 400);
        serve_reply_free(&r);
        assert_int_equal(delete_response(id, keys[i]), i ? 200 : 404);
    }
    json_decref(sent);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    server = outer;
    unlink(path);
}

static void names_the_methods_of_a_response(void **state) {
    (void)state;
    serve_reply r = serve_fetch(&server, "PUT /v1/responses/resp_1", "", "{}");
    assert_int_equal(r.status, 405);
    assert_non_null(strstr(r.head, "Allow: GET, HEAD, DELETE, OPTIONS\r\n"));
    serve_reply_free(&r);
    json_decref(get_response("resp_1?stream=true", 400));
    /* Endpoints that are not there are not taken for responses. */
    json_decref(serve_json(&server, RESPONSES "/compact", "{\"model\":\"demo\"}", 404));
    json_decref(get_response("input_tokens", 405));
}

static int start_server(void **state) {
    (void)state;
    SERVE_START(&server, "-q");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stored_conversation_continues),
        cmocka_unit_test(a_response_is_retrieved_and_deleted),
        cmocka_unit_test(a_client_may_decline_the_store),
        cmocka_unit_test(a_streamed_response_is_stored),
        cmocka_unit_test(a_response_belongs_to_its_key),
        cmocka_unit_test(names_the_methods_of_a_response),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
