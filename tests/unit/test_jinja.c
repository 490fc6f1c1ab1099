/* SPDX-License-Identifier: Apache-2.0 */
/* The template interpreter: what comes from whom, what is refused, what is bounded. */
#include "support/jinja_case.h"

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

static void marks_what_the_conversation_says(void **state) {
    (void)state;
    const char *v = "{'x':' <|im_end|> ','l':['a<s>','b'],'d':{'k<':'v<'},'n':3}";
    jinja_check_marks("{{ bos_token }}{{ x }}!", v, "<s>【 <|im_end|> 】!");
    jinja_check_marks("[{{ x|trim }}][{{ x.strip() }}]", v, "[【<|im_end|>】][【<|im_end|>】]");
    jinja_check_marks("{{ x.split('|')[1] }}|{{ x.split('|')|join('|') }}", v,
                      "【im_end】|【 <】|【im_end】|【> 】");
    jinja_check_marks("{{ x|replace('im', 'I') }}{{ 'a-b'|replace('-', l[1]) }}", v,
                      "【 <|】I【_end|> 】a【b】b");
    jinja_check_marks("{{ l|tojson }}{{ d|tojson }}", v,
                      "[\"【a<s>】\", \"【b】\"]{\"【k<】\": \"【v<】\"}");
    jinja_check_marks("{{ x[1:6] }}{{ x[::-1]|upper|trim }}", v, "【<|im_>|DNE_MI|<】");
    jinja_check_marks("{{ '<' ~ l[0] ~ '>' ~ n }}{{ '%s/%s' % (l[1], eos_token) }}", v,
                      "<【a<s>】>3【b】/</s>");
    jinja_check_marks("{{ '{}:{:>4}'.format(l[1], 'q') }}{{ d }}", v,
                      "【b】:   q{'【k<】': '【v<】'}");
    jinja_check_marks("{% macro m(a) %}[{{ a }}{{ caller() }}]{% endmacro %}"
                      "{% call m(l[1]) %}({{ l[0] }}){% endcall %}",
                      v, "[【b】(【a<s>】)]");
    jinja_check_marks("{% set y %}<{{ l[0] }}>{% endset %}{{ y }}{{ y|length }}{{ y[1:3] }}", v,
                      "<【a<s>】>6【a<】");
    jinja_check_marks("{% filter upper %}a{{ l[1] }}c{% endfilter %}{{ x|e }}", v,
                      "A【B】C【 &lt;|im_end|&gt; 】");
    jinja_check_marks(
        "{% set ns = namespace(t='') %}{% for i in l %}{% set ns.t = ns.t + '-' + i %}"
        "{% endfor %}{{ ns.t }}",
        v, "-【a<s>】-【b】");
    jinja_check_marks("{{ ('a\n' ~ l[0])|indent(2) }}{{ l[0]|tojson(indent=1) }}", v,
                      "a\n  【a<s>】\"【a<s>】\"");
    jinja_check_marks("{% for k, v in d|dictsort %}{{ k }}={{ v }}{% endfor %}", v,
                      "【k<】=【v<】");
}

static void keeps_refusals_apart(void **state) {
    (void)state;
    jinja_check_fails("\n{{ raise_exception('roles ' ~ x) }}", "{'x':'must'}", AG_REFUSED,
                      "roles must");
    jinja_check_fails("a\n\n{% for x in 3 %}{% endfor %}", NULL, AG_INVALID,
                      "case, line 3, in {% for %}: 'int' object is not iterable");
    jinja_check_fails("{{ a.b }}", NULL, AG_INVALID, "'a' is undefined");
    jinja_check_fails("{% if x %}", NULL, AG_FORMAT, "case, line 1, in {% if %}");
    jinja_check_fails("{{ 'a'|nonsense }}", NULL, AG_FORMAT, "no filter 'nonsense'");
    jinja_check_fails("{{ 9223372036854775807 + 1 }}", NULL, AG_UNSUPPORTED, "64 bits");
    jinja_check("{{ a }}[{{ a is defined }}]{% if a and false %}{{ a|nonsense }}{% endif %}", NULL,
                "[False]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_a_conversation),
        cmocka_unit_test(marks_what_the_conversation_says),
        cmocka_unit_test(keeps_refusals_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
