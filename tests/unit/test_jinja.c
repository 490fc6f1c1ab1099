/* SPDX-License-Identifier: Apache-2.0 */
/* Template interpreter: rendered text, spans of the input, error statuses and use by several
 * threads. */
#include "support/jinja_case.h"

#include <pthread.h>

static void renders_a_conversation(void **state) {
    (void)state;
    jinja_check(
        "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n"
        "{{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}\n"
        "{%- if add_generation_prompt %}<|assistant|>{% endif %}",
        "{'messages':[{'role':'user','content':' hi '},{'role':'assistant','content':'ho'}],"
        "'add_generation_prompt':true}",
        "<s><|user|>\nhi</s>\n<|assistant|>\nho</s>\n<|assistant|>");
}

static void marks_bytes_of_the_input(void **state) {
    (void)state;
    const char *v = "{'x':' <|im_end|> ','l':['a<s>','b'],'d':{'k<':'v<'},'n':3}";
    jinja_check_spans("{{ bos_token }}{{ x }}!", v, "<s>【 <|im_end|> 】!");
    jinja_check_spans("[{{ x|trim }}][{{ x.strip() }}]", v, "[【<|im_end|>】][【<|im_end|>】]");
    jinja_check_spans("{{ x.split('|')[1] }}|{{ x.split('|')|join('|') }}", v,
                      "【im_end】|【 <】|【im_end】|【> 】");
    jinja_check_spans("{{ x|replace('im', 'I') }}{{ 'a-b'|replace('-', l[1]) }}", v,
                      "【 <|】I【_end|> 】a【b】b");
    jinja_check_spans("{{ l|tojson }}{{ d|tojson }}", v,
                      "[\"【a<s>】\", \"【b】\"]{\"【k<】\": \"【v<】\"}");
    jinja_check_spans("{{ x[1:6] }}{{ x[::-1]|upper|trim }}", v, "【<|im_>|DNE_MI|<】");
    jinja_check_spans("{{ '<' ~ l[0] ~ '>' ~ n }}{{ '%s/%s' % (l[1], eos_token) }}", v,
                      "<【a<s>】>3【b】/</s>");
    jinja_check_spans("{{ '{}:{{{x}}}'.format(l[1], x='q') }}{{ d }}", v,
                      "【b】:{q}{'【k<】': '【v<】'}");
    jinja_check_spans("{% macro m(a) %}[{{ a }}{{ caller() }}]{% endmacro %}"
                      "{% call m(l[1]) %}({{ l[0] }}){% endcall %}",
                      v, "[【b】(【a<s>】)]");
    jinja_check_spans("{% set y %}<{{ l[0] }}>{% endset %}{{ y }}{{ y|length }}{{ y[1:3] }}", v,
                      "<【a<s>】>6【a<】");
    jinja_check_spans("{% filter upper %}a{{ l[1] }}c{% endfilter %}{{ x|e }}", v,
                      "A【B】C【 &lt;|im_end|&gt; 】");
    jinja_check_spans(
        "{% set ns = namespace(t='') %}{% for i in l %}{% set ns.t = ns.t + '-' + i %}"
        "{% endfor %}{{ ns.t }}",
        v, "-【a<s>】-【b】");
    jinja_check_spans("{{ ('a\n' ~ l[0])|indent(2) }}{{ l[0]|tojson(indent=1) }}", v,
                      "a\n  【a<s>】\"【a<s>】\"");
    jinja_check_spans("{{ q }}{{ q|tojson }}{{ q[0]|tojson(ensure_ascii=true) }}",
                      "{'q':['a\\nü']}", "['【a\\nü】'][\"【a\\nü】\"]\"【a\\n\\u00fc】\"");
    jinja_check_spans("{{ 'x'.join(l) }}{{ l[0].partition('<') }}{{ l[0]|title }}", v,
                      "【a<s>】x【b】('【a】', '【<】', '【s>】')【A<S>】");
    jinja_check_spans("{% for c in l[0] %}{{ c }}.{% endfor %}{{ l[0]|list|join }}{{ l[1] * 2 }}",
                      v, "【a】.【<】.【s】.【>】.【a<s>bb】");
    jinja_check_spans("{% for k, v in d|dictsort %}{{ k }}={{ v }}{% endfor %}", v,
                      "【k<】=【v<】");
}

static void reports_each_failure_with_its_status(void **state) {
    (void)state;
    jinja_check_fails("\n{{ raise_exception('roles ' ~ x) }}", "{'x':'must'}", AG_REFUSED,
                      "roles must");
    jinja_check_fails("a\n\n{% for x in 3 %}{% endfor %}", NULL, AG_INVALID,
                      "case, line 3, in {% for %}: 'int' object is not iterable");
    jinja_check_fails("{{ a.b }}", NULL, AG_INVALID, "'a' is undefined");
    jinja_check_fails("{% if x %}", NULL, AG_FORMAT, "case, line 1, in {% if %}");
    jinja_check_fails("{{ 'a'|nonsense }}", NULL, AG_FORMAT, "unknown filter 'nonsense'");
    jinja_check_fails("{{ 9223372036854775807 + 1 }}", NULL, AG_UNSUPPORTED, "64 bits");
    jinja_check("{{ a }}[{{ a is defined }}]{% if a and false %}{{ a|nonsense }}{% endif %}", NULL,
                "[False]");
}

/* Features of jinja2 that no known template uses: the error names each of them. */
static void rejects_unsupported_features_by_name(void **state) {
    (void)state;
    static const char *const filters[] = {"attr",   "center",   "filesizeformat", "forceescape",
                                          "pprint", "random",   "striptags",      "urlencode",
                                          "urlize", "wordwrap", "xmlattr"};
    static const char *const methods[] = {
        "casefold",  "center",       "expandtabs",   "format_map", "isalnum",
        "isalpha",   "isascii",      "isdecimal",    "islower",    "isidentifier",
        "isnumeric", "isprintable",  "isspace",      "istitle",    "isupper",
        "ljust",     "removeprefix", "removesuffix", "rfind",      "rindex",
        "rjust",     "rpartition",   "swapcase",     "translate",  "zfill"};
    static const char *const tags[] = {"autoescape", "block", "extends", "from",
                                       "import",     "print", "include"};
    static const char *const functions[] = {"cycler", "joiner", "lipsum"};
    static const struct {
        const char *template, *message;
    } formats[] = {
        {"{{ '%5d' % 1 }}", "'%5' is not supported, only %s, %d and %%"},
        {"{{ '%r' % 1 }}", "'%r' is not supported"},
        {"{{ '%(a)s' % {'a': 1} }}", "'%(' is not supported"},
        {"{{ '%(a)s'|format(a=1) }}", "format: keyword arguments are not supported"},
        {"{{ '{:>4}'.format(1) }}", "'{:>4}' is not supported, only {}, {0} and {name}"},
        {"{{ '{0.a}'.format(x) }}", "'{0.a}' is not supported"},
        {"{{ '{!r}'.format(1) }}", "'{!r}' is not supported"},
        {"{% for x in [] recursive %}{% endfor %}", "'recursive'"},
    };
    char template[100], message[100];
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        snprintf(template, sizeof template, "{{ 'a'|%s }}", filters[i]);
        snprintf(message, sizeof message, "unknown filter '%s'", filters[i]);
        jinja_check_fails(template, NULL, AG_FORMAT, message);
    }
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        snprintf(template, sizeof template, "{{ 'a'.%s() }}", methods[i]);
        snprintf(message, sizeof message, "'str' object has no attribute '%s'", methods[i]);
        jinja_check_fails(template, NULL, AG_INVALID, message);
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        snprintf(template, sizeof template, "{%% %s x %%}", tags[i]);
        snprintf(message, sizeof message, "unknown tag '%s'", tags[i]);
        jinja_check_fails(template, NULL, AG_FORMAT, message);
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        snprintf(template, sizeof template, "{{ %s('a') }}", functions[i]);
        snprintf(message, sizeof message, "'%s' is undefined", functions[i]);
        jinja_check_fails(template, NULL, AG_INVALID, message);
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const bool is_tag = formats[i].template[1] == '%';
        jinja_check_fails(formats[i].template, "{'x':{'a':1}}", is_tag ? AG_FORMAT : AG_UNSUPPORTED,
                          formats[i].message);
    }
}

typedef struct shared_render {
    const ag_jinja *t;
    json_t *variables;
    char *text; /* last rendered text, owned */
} shared_render;

static void *render_often(void *user) {
    shared_render *r = user;
    for (int i = 0; i < 40; i++) {
        ag_jinja_input in = {.variables = r->variables};
        ag_jinja_output out;
        free(r->text);
        r->text = NULL;
        if (ag_jinja_render(r->t, &in, &out, NULL) == AG_OK) r->text = strdup(out.text);
        ag_jinja_output_free(&out);
    }
    return NULL;
}

static void renders_in_several_threads(void **state) {
    (void)state;
    const char *template = "{% macro m(a) %}[{{ a|upper }}]{% endmacro %}{% set é = 'ünï' %}"
                           "{% for x in l %}{{ m(x) }}{{ 'ünï'[1] }}{{ {'k': 1}.k }}{{ é|length }}"
                           "{{ d['ünï'] }}{{ ('a,b'|safe).split(',') }}{% endfor %}";
    ag_jinja *t;
    assert_int_equal(ag_jinja_parse("shared", template, strlen(template), &t, NULL), AG_OK);
    shared_render renders[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        renders[i] =
            (shared_render){.t = t, .variables = jinja_json("{'l':['a','b'],'d':{'ünï':7}}")};
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &renders[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(renders[i].text, "[A]n137[Markup('a'), Markup('b')]"
                                             "[B]n137[Markup('a'), Markup('b')]");
        free(renders[i].text);
        json_decref(renders[i].variables);
    }
    ag_jinja_destroy(t);
}

static void reports_variables_that_a_template_reads(void **state) {
    (void)state;
    const char *template =
        "{% set a = b %}{% for x in c if d.e %}{{ f(g) }}{% endfor %}{% set h.i = 1 %}";
    ag_jinja *t;
    assert_int_equal(ag_jinja_parse("reads", template, strlen(template), &t, NULL), AG_OK);
    for (const char *name = "bcdfgh"; *name; name++) {
        assert_true(ag_jinja_reads(t, (char[]){*name, 0}));
    }
    for (const char *name = "aeixz"; *name; name++) {
        assert_false(ag_jinja_reads(t, (char[]){*name, 0}));
    }
    ag_jinja_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_a_conversation),
        cmocka_unit_test(marks_bytes_of_the_input),
        cmocka_unit_test(reports_each_failure_with_its_status),
        cmocka_unit_test(rejects_unsupported_features_by_name),
        cmocka_unit_test(renders_in_several_threads),
        cmocka_unit_test(reports_variables_that_a_template_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
