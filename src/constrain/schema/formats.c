/* SPDX-License-Identifier: Apache-2.0 */
/* Formats as regular expressions. Each accepts a part of what its specification allows, and nothing
 * else (RFC 3339, 3986, 4122, 4291, 5321, 6570, 6901, 1123). */
#include "constrain/schema/keywords.h"

#include <string.h>

#define YEAR "(000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define LEAP_YEAR "(\\d\\d(0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26]|0[48])00)"
#define DATE                                                                                \
    "(" YEAR                                                                                \
    "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|" \
    "1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"

#define LABEL(n) "[a-zA-Z0-9]([a-zA-Z0-9-]{0," n "}[a-zA-Z0-9])?"
/* At most 253 characters: few long labels, or many short ones. */
#define HOSTNAME \
    "((" LABEL("58") "\\.){0,3}" LABEL("58") "|(" LABEL("20") "\\.){0,9}" LABEL("20") ")"
#define ATOM "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"

#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(\\." OCTET "){3}"
#define H16 "[0-9a-fA-F]{1,4}"
#define LS32 "(" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                  \
    "((" H16 ":){6}" LS32 "|::(" H16 ":){5}" LS32 "|(" H16 ")?::(" H16 ":){4}" LS32 "|((" H16 \
    ":){0,1}" H16 ")?::(" H16 ":){3}" LS32 "|((" H16 ":){0,2}" H16 ")?::(" H16 ":){2}" LS32   \
    "|((" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|((" H16 ":){0,4}" H16 ")?::" LS32 "|((" H16 \
    ":){0,5}" H16 ")?::" H16 "|((" H16 ":){0,6}" H16 ")?::)"

#define HEX2 "%[0-9a-fA-F]{2}"
/* more: characters beyond ASCII, for IRIs. */
#define SEGMENT(more, extra) "([a-zA-Z0-9._~!$&'()*+,;=@" extra more "-]|" HEX2 ")"
/* ip: the address in brackets, which IRIs do not have here. */
#define IP_LITERAL "|(" SEGMENT("", ":") "*@)?\\[" IPV6 "\\](:\\d*)?"
#define AUTHORITY(more, ip) "(" SEGMENT(more, ":") "*" ip ")"
#define QUERY(more) "(\\?" SEGMENT(more, ":/?") "*)?(#" SEGMENT(more, ":/?") "*)?"
#define PATH_ABSOLUTE(more) "/(" SEGMENT(more, ":") "+(/" SEGMENT(more, ":") "*)*)?"
#define HIER(more, ip)                                                                        \
    "(//" AUTHORITY(more, ip) "(/" SEGMENT(more, ":") "*)*|" PATH_ABSOLUTE(more) "|" SEGMENT( \
        more, ":") "+(/" SEGMENT(more, ":") "*)*|)"
#define URI(more, ip) "[a-zA-Z][a-zA-Z0-9+.-]*:" HIER(more, ip) QUERY(more)
#define RELATIVE(more, ip)                                                                    \
    "(//" AUTHORITY(more, ip) "(/" SEGMENT(more, ":") "*)*|" PATH_ABSOLUTE(more) "|" SEGMENT( \
        more, "") "+(/" SEGMENT(more, ":") "*)*|)" QUERY(more)
#define BEYOND "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"

#define DAYS "(\\d+D|\\d+M(\\d+D)?|\\d+Y(\\d+M(\\d+D)?)?)"
#define HOURS "T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S)"
#define POINTER "(/([^/~]|~[01])*)*"
#define VARIABLE "([a-zA-Z0-9_]|" HEX2 ")+(\\.([a-zA-Z0-9_]|" HEX2 ")+)*(:[1-9]\\d{0,3}|\\*)?"

static const struct {
    const char *name, *regex; /* NULL: not supported */
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(" DAYS "(" HOURS ")?|" HOURS "|\\d+W)"},
    {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"hostname", HOSTNAME},
    {"email", ATOM "(\\." ATOM ")*@" HOSTNAME},
    {"uri", URI("", IP_LITERAL)},
    {"uri-reference", "(" URI("", IP_LITERAL) "|" RELATIVE("", IP_LITERAL) ")"},
    {"iri", URI(BEYOND, "")},
    {"iri-reference", "(" URI(BEYOND, "") "|" RELATIVE(BEYOND, "") ")"},
    {"uri-template",
     "([!#$&(-;=?-\\[\\]_a-z~]|" HEX2 "|\\{[+#./;?&=,!@|]?" VARIABLE "(," VARIABLE ")*\\})*"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(0|[1-9]\\d*)(#|" POINTER ")"},
    {"idn-email", NULL},
    {"idn-hostname", NULL},
    {"regex", NULL},
};

const char *ag_schema_format_regex(const char *name, bool *unsupported) {
    *unsupported = false;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, name)) continue;
        *unsupported = !formats[i].regex;
        return formats[i].regex;
    }
    return NULL;
}
