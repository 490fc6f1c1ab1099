/* SPDX-License-Identifier: Apache-2.0 */
/* One answer of the model: builds the request and reads the stream. */
import { streamChat } from './api.js';
import { withFiles } from './attachments.js';
import { NUMBERS } from './sampling.js';

export const newMessage = (role, content, files = []) => ({ role, content, files, reasoning: '', calls: [], callId: '', note: '' });

function messageForServer(m) {
    if (m.role === 'tool') return { role: 'tool', tool_call_id: m.callId, content: m.content };
    if (m.role === 'user') return { role: 'user', content: withFiles(m.content, m.files) };
    const out = { role: 'assistant', content: m.content };
    if (m.reasoning) out.reasoning_content = m.reasoning;
    if (m.calls.length)
        out.tool_calls = m.calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } }));
    return out;
}

export function requestBody(conversation, settings, model) {
    const messages = conversation.messages.map(messageForServer);
    if (conversation.system.trim()) messages.unshift({ role: 'system', content: conversation.system });
    const body = { model, messages, stream: true, stream_options: { include_usage: true } };
    for (const [name] of NUMBERS) {
        const value = settings[name];
        if (value !== undefined && value !== '' && Number.isFinite(Number(value))) body[name] = Number(value);
    }
    for (const name of ['kv_type', 'kv_policy', 'kv_budget']) if (settings[name]) body[name] = settings[name];
    if (settings.thinking) body.chat_template_kwargs = { enable_thinking: settings.thinking === 'on' };
    if (settings.tools) body.tools = JSON.parse(settings.tools);
    if (settings.stop) body.stop = settings.stop.split('\n').filter(Boolean);
    if (settings.schema) body.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema: JSON.parse(settings.schema) } };
    return body;
}

function addCall(message, delta) {
    const i = Number.isInteger(delta.index) && delta.index >= 0 && delta.index < 1000 ? delta.index : 0;
    while (message.calls.length <= i) message.calls.push({ id: '', name: '', arguments: '' });
    const call = message.calls[i];
    if (delta.id) call.id = delta.id;
    if (delta.function?.name) call.name += delta.function.name;
    if (delta.function?.arguments) call.arguments += delta.function.arguments;
}

function takeEvent(event, message, figures) {
    const choice = event.choices?.[0];
    if (event.usage) figures.usage = event.usage;
    if (!choice) return;
    const delta = choice.delta || {};
    if (typeof delta.content === 'string') message.content += delta.content;
    if (typeof delta.reasoning_content === 'string') message.reasoning += delta.reasoning_content;
    for (const call of delta.tool_calls || []) addCall(message, call);
    if (choice.finish_reason) figures.finish = choice.finish_reason;
    if (!figures.first && (delta.content || delta.reasoning_content || delta.tool_calls)) figures.first = performance.now();
}

/* Fills in the message. Calls onOpen(headers) at the start and onGrown() after each piece. Returns statistics, or
 * throws an error; a stop by the user is not an error. */
export async function answer(body, message, signal, onOpen, onGrown) {
    const figures = { began: performance.now(), first: 0, ended: 0, usage: null, finish: '' };
    try {
        await streamChat(body, signal, onOpen, (event) => {
            takeEvent(event, message, figures);
            onGrown();
        });
    } catch (e) {
        if (!signal.aborted) throw e;
        figures.finish = 'stopped';
        message.note = 'Stopped.';
    }
    if (figures.finish === 'length') message.note = 'The answer reached its limit of tokens.';
    figures.ended = performance.now();
    return figures;
}

export function figuresText(f) {
    const u = f.usage, parts = [];
    if (f.first) parts.push(`first token after ${((f.first - f.began) / 1000).toFixed(2)} s`);
    if (u) {
        const cached = u.prompt_tokens_details?.cached_tokens || 0;
        parts.push(`${u.prompt_tokens} tokens of prompt, ${cached} of them not read again`);
        const rate = u.completion_tokens / Math.max(1e-3, (f.ended - f.first) / 1000);
        parts.push(`${u.completion_tokens} generated, ${rate.toFixed(1)} a second`);
    }
    return parts.join(' · ');
}
