/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the server: models, an answer as a stream, the cache. */

const KEY = 'antigravity.key';

export function apiKey() {
    return sessionStorage.getItem(KEY) || localStorage.getItem(KEY) || '';
}

export function setApiKey(key, remember) {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    if (key) (remember ? localStorage : sessionStorage).setItem(KEY, key);
}

export const keyIsRemembered = () => localStorage.getItem(KEY) !== null;

export class ApiError extends Error {
    constructor(status, text) {
        super(text);
        this.status = status;
    }
}

async function errorOf(response) {
    let text = `${response.status} ${response.statusText}`;
    try {
        const body = await response.json();
        if (typeof body.error?.message === 'string') text = body.error.message;
        else if (typeof body.error === 'string') text = body.error;
    } catch {
        /* Not JSON: only the status is known. */
    }
    return new ApiError(response.status, text);
}

async function ask(path, options = {}) {
    const headers = { ...(options.headers || {}) };
    if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
    const response = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit' });
    if (!response.ok) throw await errorOf(response);
    return response;
}

export const getJson = async (path, signal) => (await ask(path, { signal })).json();

/* ---- server-sent events ---- */

/* Splits bytes, which arrive in pieces of any size, into events. */
export class EventParser {
    #line = '';
    #data = [];
    #decoder = new TextDecoder();

    /* Returns the texts of the events that end within these bytes. */
    push(bytes) {
        const events = [];
        this.#line += this.#decoder.decode(bytes, { stream: true });
        const lines = this.#line.split(/\r\n|\n/);
        this.#line = lines.pop();
        for (const line of lines) {
            if (line === '') {
                if (this.#data.length) events.push(this.#data.join('\n'));
                this.#data = [];
            } else if (line.startsWith('data:')) {
                this.#data.push(line.slice(line[5] === ' ' ? 6 : 5));
            }
        }
        return events;
    }
}

/* Streams a chat: calls onOpen(headers), then onEvent(object) for each event. Throws the server's error, or an error
 * if the stream is truncated. */
export async function streamChat(body, signal, onOpen, onEvent) {
    const response = await ask('/v1/chat/completions', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
        signal,
    });
    onOpen(response.headers);
    const reader = response.body.getReader();
    const parser = new EventParser();
    for (;;) {
        const { done, value } = await reader.read();
        if (done) throw new ApiError(0, 'The stream broke off before its end.');
        for (const text of parser.push(value)) {
            if (text === '[DONE]') return;
            const event = JSON.parse(text);
            if (event.error) throw new ApiError(event.error.status || 500, event.error.message || 'The answer failed.');
            onEvent(event);
        }
    }
}
