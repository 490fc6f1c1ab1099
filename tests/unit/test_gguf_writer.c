/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files are written completely or not at all, and read back as written. */
#include "formats/gguf_writer.h"

#include "support/failing_allocator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/ag-gguf-writer-XXXXXX", path[128];

static ag_source_string text(const char *s) { return (ag_source_string){s, strlen(s)}; }

static const float values[2][32] = {{1, -2, 3}, {4}};
static const int32_t numbers[] = {1, -2, 3};

static void put_all(ag_gguf_writer *w) {
    const ag_source_string words[] = {text("a"), text(""), text("c d")};
    ag_gguf_put_string(w, "general.architecture", text("llama"));
    ag_gguf_put_u32(w, "llama.block_count", 7);
    ag_gguf_put_f32(w, "llama.eps", 0.5f);
    ag_gguf_put_bool(w, "flag", true);
    ag_gguf_put_strings(w, "words", words, 3);
    ag_gguf_put_array(w, "numbers", AG_GGUF_I32, numbers, 3);
    const ag_shape matrix = ag_shape_2d(2, 32), vector = ag_shape_1d(5);
    ag_gguf_add_tensor(w, "small", AG_F32, &vector);
    ag_gguf_add_tensor(w, "matrix", AG_F32, &matrix);
}

static ag_status write_all(ag_gguf_writer *w, ag_error *err) {
    ag_status st = ag_gguf_writer_open(w, path, err);
    if (st == AG_OK) st = ag_gguf_write(w, values, 20, err);
    if (st == AG_OK) st = ag_gguf_end_tensor(w, err);
    if (st == AG_OK) st = ag_gguf_write(w, values, 128, err);
    if (st == AG_OK) st = ag_gguf_write(w, values[1], 128, err);
    if (st == AG_OK) st = ag_gguf_end_tensor(w, err);
    return st;
}

static size_t files_in_dir(void) {
    char command[160], count[16] = "";
    snprintf(command, sizeof command, "ls -A %s | wc -l", dir);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    assert_non_null(fgets(count, sizeof count, p));
    pclose(p);
    return (size_t)strtoul(count, NULL, 10);
}

static void reads_back_what_it_wrote(void **state) {
    (void)state;
    ag_gguf_writer w = {0};
    ag_error err;
    put_all(&w);
    assert_int_equal(write_all(&w, &err), AG_OK);
    assert_int_equal(files_in_dir(), 0);
    assert_int_equal(ag_gguf_writer_commit(&w, &err), AG_OK);
    ag_gguf_writer_close(&w);

    ag_weight_source *s;
    assert_int_equal(ag_source_open(path, &s, &err), AG_OK);
    assert_int_equal(ag_source_open_tensors(s, &err), AG_OK);
    const ag_gguf *g = ag_gguf_source_header(s);
    int64_t v = 0;
    ag_source_string architecture;
    const ag_gguf_entry *words;
    assert_int_equal(ag_gguf_integer(g, "llama.block_count", &v, NULL), AG_OK);
    assert_int_equal(v, 7);
    assert_int_equal(ag_gguf_integer(g, "flag", &v, NULL), AG_OK);
    assert_int_equal(v, 1);
    assert_int_equal(ag_gguf_string(g, "general.architecture", &architecture, NULL), AG_OK);
    assert_int_equal(architecture.n, 5);
    assert_int_equal(ag_gguf_array(g, "words", AG_GGUF_STRING, &words, NULL), AG_OK);
    assert_int_equal(words->n, 3);
    assert_memory_equal(ag_gguf_find(g, "numbers")->first, numbers, sizeof numbers);

    const ag_source_tensor *t = ag_source_find(s, "matrix");
    ag_tensor matrix;
    assert_non_null(t);
    assert_int_equal(t->offset % AG_GGUF_ALIGNMENT, 0);
    assert_int_equal(ag_source_map(s, t, &matrix, NULL), AG_OK);
    assert_int_equal(ag_shape_rows(&matrix.shape), 2);
    assert_memory_equal(ag_tensor_data(&matrix), values, sizeof values);
    ag_source_destroy(s);

    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size % AG_GGUF_ALIGNMENT, 0);
    assert_true(st.st_mode & S_IRUSR);
    assert_int_equal(remove(path), 0);
}

static void copies_entries_of_other_files(void **state) {
    (void)state;
    ag_gguf_writer w = {0}, copy = {0};
    ag_error err;
    put_all(&w);
    assert_int_equal(write_all(&w, &err), AG_OK);
    assert_int_equal(ag_gguf_writer_commit(&w, &err), AG_OK);
    ag_gguf_writer_close(&w);
    ag_weight_source *s;
    assert_int_equal(ag_source_open(path, &s, &err), AG_OK);
    const ag_gguf *g = ag_gguf_source_header(s);
    put_all(&w);
    for (size_t i = 0; i < g->n_entries; i++) ag_gguf_put_entry(&copy, &g->entries[i]);
    assert_int_equal(copy.n_entries, w.n_entries);
    assert_int_equal(copy.metadata.n, w.metadata.n);
    ag_gguf_writer_close(&w);
    ag_gguf_writer_close(&copy);
    ag_source_destroy(s);
    assert_int_equal(remove(path), 0);
}

static void uncommitted_writer_leaves_no_file(void **state) {
    (void)state;
    ag_gguf_writer w = {0};
    ag_error err;
    put_all(&w);
    assert_int_equal(write_all(&w, &err), AG_OK);
    ag_gguf_writer_close(&w);
    assert_int_equal(files_in_dir(), 0);
}

static void reports_that_memory_ran_out(void **state) {
    (void)state;
    bool failed = true;
    for (size_t n = 0; failed && n < 1000; n++) {
        ag_gguf_writer w = {0};
        ag_error err = {0};
        failing_allocator f;
        failing_install(&f, n);
        put_all(&w);
        const ag_status st = write_all(&w, &err);
        ag_gguf_writer_close(&w);
        failed = f.failed;
        assert_int_equal(f.in_use, 0);
        ag_set_allocator(NULL);
        assert_int_equal(st, failed ? AG_NOMEM : AG_OK);
    }
    assert_false(failed);
    assert_int_equal(files_in_dir(), 0);
}

int main(void) {
    if (!mkdtemp(dir)) return 1;
    snprintf(path, sizeof path, "%s/file.gguf", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_it_wrote),
        cmocka_unit_test(copies_entries_of_other_files),
        cmocka_unit_test(uncommitted_writer_leaves_no_file),
        cmocka_unit_test(reports_that_memory_ran_out),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(dir) == 0 ? failed : 1;
}
