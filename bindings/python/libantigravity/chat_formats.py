# SPDX-License-Identifier: Apache-2.0
"""Chat templates by the names that llama-cpp-python gives them, for `Llama(chat_format=...)`."""

from __future__ import annotations

from . import errors

_CHATML = """{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""

_CHATML_TOOLS = """{%- if tools -%}
<|im_start|>system
You can call these functions:
<tools>
{% for t in tools %}{{ t | tojson }}
{% endfor -%}
</tools>
A call is a JSON object between tags: <tool_call>
{"name": <the function>, "arguments": <an object>}
</tool_call><|im_end|>
{% endif -%}
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content or "" }}
{%- for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""

_LLAMA_2 = """{%- set system = "" -%}
{%- if messages[0].role == "system" -%}
{%- set system = "<<SYS>>\\n" + messages[0].content + "\\n<</SYS>>\\n\\n" -%}
{%- set messages = messages[1:] -%}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == "user" -%}
{{ bos_token }}[INST] {% if loop.first %}{{ system }}{% endif %}{{ m.content }} [/INST]
{%- else %} {{ m.content }} {{ eos_token }}
{%- endif -%}
{%- endfor -%}"""

_LLAMA_3 = """{{- bos_token -}}
{%- for m in messages -%}
<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content }}<|eot_id|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start_header_id|>assistant<|end_header_id|>

{% endif -%}"""

TEMPLATES = {
    "chatml": _CHATML,
    "chatml-function-calling": _CHATML_TOOLS,
    "llama-2": _LLAMA_2,
    "llama-3": _LLAMA_3,
}


def template_of(name: str) -> str:
    """Return the Jinja text of a chat format."""
    if name not in TEMPLATES:
        raise errors.InvalidError(
            f"chat_format is '{name}': it must be one of {', '.join(TEMPLATES)}, or None for the model's template"
        )
    return TEMPLATES[name]
