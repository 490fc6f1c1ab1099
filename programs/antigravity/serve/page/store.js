/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations and settings, stored in this browser only. */

const CONVERSATIONS = 'antigravity.conversations';
const SETTINGS = 'antigravity.settings';
const ROLES = ['user', 'assistant', 'tool'];

function read(key, otherwise) {
    try {
        return JSON.parse(localStorage.getItem(key)) ?? otherwise;
    } catch {
        return otherwise;
    }
}

/* Returns false if the browser's storage is full. */
function write(key, value) {
    try {
        localStorage.setItem(key, JSON.stringify(value));
        return true;
    } catch {
        return false;
    }
}

const text = (value) => (typeof value === 'string' ? value : '');

/* Validates a conversation, which may come from an untrusted file: keeps known fields of the expected types only. */
function checkedCall(c) {
    return { id: text(c?.id), name: text(c?.name), arguments: text(c?.arguments) };
}

function checkedFile(f) {
    return { name: text(f?.name).slice(0, 200), text: text(f?.text) };
}

function checkedMessage(m) {
    if (!m || !ROLES.includes(m.role)) return null;
    return {
        role: m.role,
        content: text(m.content),
        files: Array.isArray(m.files) ? m.files.map(checkedFile) : [],
        reasoning: text(m.reasoning),
        calls: Array.isArray(m.calls) ? m.calls.map(checkedCall) : [],
        callId: text(m.callId),
        note: text(m.note),
    };
}

function checkedConversation(c) {
    if (!c || !Array.isArray(c.messages)) return null;
    return {
        id: /^[0-9a-f-]{36}$/.test(c.id) ? c.id : newId(),
        title: text(c.title).slice(0, 200),
        isNamed: c.isNamed === true, /* by the user; else the title is the start of the first message */
        system: text(c.system),
        updated: Number.isFinite(c.updated) ? c.updated : Date.now(),
        messages: c.messages.map(checkedMessage).filter(Boolean),
    };
}

/* crypto.randomUUID() exists on https and localhost only. */
function newId() {
    const hex = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

function storedConversations() {
    const list = read(CONVERSATIONS, []);
    return (Array.isArray(list) ? list : []).map(checkedConversation).filter(Boolean);
}

export class Store {
    constructor() {
        this.conversations = storedConversations();
        this.settings = { ...read(SETTINGS, {}) };
        this.current = this.conversations[0] || this.create();
    }

    create() {
        const empty = this.conversations.find((c) => !c.messages.length && !c.system);
        this.current = empty || { id: newId(), title: '', isNamed: false, system: '', updated: Date.now(), messages: [] };
        if (!empty) this.conversations.unshift(this.current);
        return this.current;
    }

    /* An empty title is again the start of the first message. */
    rename(conversation, title) {
        conversation.title = title.trim().slice(0, 200);
        conversation.isNamed = !!conversation.title;
        if (!conversation.isNamed) this.#setTitle(conversation);
    }

    #setTitle(conversation) {
        const first = conversation.messages.find((m) => m.role === 'user');
        if (first && !conversation.isNamed) conversation.title = (first.content.trim() || first.files[0]?.name || '').slice(0, 60);
    }

    /* Returns the conversations with all words of the query in their title, system prompt or messages. */
    matching(query) {
        const words = query.toLowerCase().split(/\s+/).filter(Boolean);
        if (!words.length) return this.conversations;
        return this.conversations.filter((c) => {
            const all = [c.title, c.system, ...c.messages.map((m) => m.content)].join('\n').toLowerCase();
            return words.every((w) => all.includes(w));
        });
    }

    select(id) {
        this.current = this.conversations.find((c) => c.id === id) || this.current;
    }

    remove(id) {
        this.conversations = this.conversations.filter((c) => c.id !== id);
        if (this.current.id === id) this.current = this.conversations[0] || this.create();
    }

    removeAll() {
        this.conversations = [];
        this.create();
    }

    touch(conversation) {
        conversation.updated = Date.now();
        this.#setTitle(conversation);
        this.conversations.sort((a, b) => b.updated - a.updated);
    }

    save() {
        return write(CONVERSATIONS, this.conversations.filter((c) => c.messages.length || c.system));
    }

    /* Takes over what another tab has saved, except for the conversation that is open here while it gets an answer
     * or is not saved. Calls onChange() if the display must change. */
    watch(isBusy, onChange) {
        addEventListener('storage', (e) => {
            if (e.key !== CONVERSATIONS) return;
            const { current } = this;
            this.conversations = storedConversations();
            const stored = this.conversations.findIndex((c) => c.id === current.id);
            if (stored >= 0 && isBusy()) this.conversations[stored] = current;
            else if (stored >= 0) this.current = this.conversations[stored];
            else if (isBusy() || !current.messages.length) this.conversations.unshift(current);
            else this.create();
            onChange();
        });
    }

    saveSettings() {
        return write(SETTINGS, this.settings);
    }

    exported() {
        return JSON.stringify({ version: 1, conversations: this.conversations.filter((c) => c.messages.length) }, null, 1);
    }

    /* Returns the number of imported conversations. Throws if the text is invalid. */
    import(json) {
        const list = JSON.parse(json)?.conversations;
        if (!Array.isArray(list)) throw new Error('The file contains no conversations.');
        const checked = list.map(checkedConversation).filter(Boolean);
        for (const c of checked) {
            if (this.conversations.some((other) => other.id === c.id)) c.id = newId();
            this.conversations.push(c);
        }
        return checked.length;
    }
}
