/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the list of models by name: removed entries are used again. */
#include "model/store.h"
#include "serve/models/model_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char reason[256];

int store_name_match(const char *model, const char *name) { return !strcmp(model, name); }

static model_entry name_of(const char *name, const char *system, double changed_at) {
    return (model_entry){
        .kind = MODEL_DERIVED, .name = name, .system = system, .changed_at = changed_at};
}

static const model_entry *add(model_list *l, const char *name, const char *system, double at) {
    const model_entry e = name_of(name, system, at), *added = NULL;
    if (!model_list_add(l, &e, &added, reason)) fail_msg("%s", reason);
    return added;
}

/* A client that creates its models at every start needs no further memory. */
static void equal_entry_is_used_again(void **state) {
    (void)state;
    model_list *l = model_list_create();
    const model_entry *fox = add(l, "fox", "Speak.", 1), *owl = add(l, "owl", NULL, 2);
    const model_entry again = name_of("fox", "Speak.", 3);
    assert_false(model_list_add(l, &again, NULL, reason));
    assert_non_null(strstr(reason, "another model has this name"));
    model_list_remove(l, fox);
    model_list_remove(l, owl);
    assert_null(model_list_exact(l, "fox"));
    assert_null(model_list_next(l, NULL));
    assert_ptr_equal(add(l, "owl", NULL, 4), owl);
    assert_ptr_equal(add(l, "fox", "Speak.", 5), fox);
    assert_ptr_equal(model_list_exact(l, "fox"), fox);
    assert_true(fox->changed_at == 5);
    model_list_destroy(l);
}

static void other_entry_is_new(void **state) {
    (void)state;
    model_list *l = model_list_create();
    const model_entry *fox = add(l, "fox", "Speak.", 1);
    model_list_remove(l, fox);
    const model_entry *other = add(l, "fox", NULL, 2);
    assert_ptr_not_equal(other, fox);
    assert_null(other->system);
    assert_string_equal(fox->system, "Speak."); /* a request may still read it */
    model_list_remove(l, other);
    assert_ptr_equal(add(l, "fox", "Speak.", 3), fox);
    assert_null(model_list_next(l, fox));
    model_list_destroy(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_entry_is_used_again),
        cmocka_unit_test(other_entry_is_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
