/* SPDX-License-Identifier: Apache-2.0 */
/* Reads counters of energy from files in place of the system's. */
#include "energy.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/ag_test_energy_XXXXXX";

static void path_of(char path[128], int package, const char *file) {
    snprintf(path, 128, "%s/intel-rapl:%d/%s", dir, package, file);
}

static void write_word(int domain, const char *file, const char *word) {
    char path[128];
    path_of(path, domain, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fprintf(f, "%s\n", word) > 0);
    assert_int_equal(fclose(f), 0);
}

static void write_number(int domain, const char *file, uint64_t value) {
    char word[32];
    snprintf(word, sizeof word, "%" PRIu64, value);
    write_word(domain, file, word);
}

static void make_domain(int package, const char *name, uint64_t counter) {
    char path[128];
    path_of(path, package, "");
    assert_int_equal(mkdir(path, 0700), 0);
    write_word(package, "name", name);
    write_number(package, "energy_uj", counter);
    write_number(package, "max_energy_range_uj", 10000000);
}

static void remove_domain(int package) {
    static const char *const names[] = {"name", "energy_uj", "max_energy_range_uj", ""};
    for (int i = 0; i < 4; i++) {
        char path[128];
        path_of(path, package, names[i]);
        assert_int_equal(remove(path), 0);
    }
}

static void is_unknown_without_counters(void **state) {
    (void)state;
    const energy_reading none = energy_read();
    assert_int_equal(none.n, 0);
    assert_true(energy_between(&none, &none) < 0);
}

static void adds_packages_and_turns_of_counters(void **state) {
    (void)state;
    make_domain(0, "package-0", 1000000);
    make_domain(1, "psys", 500);
    make_domain(2, "package-1", 9000000);
    const energy_reading from = energy_read();
    assert_int_equal(from.n, 2);
    write_number(0, "energy_uj", 3500000); /* 2.5 J */
    write_number(1, "energy_uj", 9000000); /* the platform, which includes the packages */
    write_number(2, "energy_uj", 1000000); /* 2 J, past the end of the range */
    const energy_reading to = energy_read();
    assert_true(energy_between(&from, &to) == 4.5);
    remove_domain(2);
    const energy_reading fewer = energy_read();
    assert_true(energy_between(&from, &fewer) < 0);
    remove_domain(1);
    remove_domain(0);
}

static int make_directory(void **state) {
    (void)state;
    return !mkdtemp(dir) || setenv("AG_POWERCAP_DIR", dir, 1);
}

static int remove_directory(void **state) {
    (void)state;
    return rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_unknown_without_counters),
        cmocka_unit_test(adds_packages_and_turns_of_counters),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
