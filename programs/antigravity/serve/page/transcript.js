/* SPDX-License-Identifier: Apache-2.0 */
/* Displays the messages of a conversation. */
import { markdown, node } from './markdown.js';

const NAMES = { user: 'You', assistant: 'Model', tool: 'Result of a tool' };

function pretty(json) {
    try {
        return JSON.stringify(JSON.parse(json), null, 2);
    } catch {
        return json; /* it is still coming, or is no JSON */
    }
}

function reasoningBox(message, isOpen) {
    if (!message.reasoning) return null;
    const box = node('details', { class: 'reasoning' }, node('summary', {}, 'Reasoning'), ...markdown(message.reasoning));
    box.open = isOpen;
    return box;
}

function callBox(call) {
    return node('details', { class: 'call', open: true },
        node('summary', {}, 'Call of ', node('code', {}, call.name)),
        node('pre', {}, node('code', {}, pretty(call.arguments))));
}

function fileBox(file) {
    return node('details', { class: 'file' }, node('summary', {}, file.name), node('pre', {}, node('code', {}, file.text)));
}

function greeting(model) {
    return node('div', { class: 'greeting' },
        node('h2', {}, model || 'Antigravity'),
        node('p', {}, model ? 'What would you like to know?' : 'The server has not named its models yet.'),
        node('p', { class: 'note' }, 'Messages and answers stay between this browser and your server.'));
}

export class Transcript {
    /* actions: retry(index), edit(index, text), answerCalls(index, texts) */
    constructor(root, actions) {
        this.root = root;
        this.actions = actions;
        this.pending = 0;
        this.follows = true;
        root.addEventListener('scroll', () => {
            this.follows = root.scrollHeight - root.scrollTop - root.clientHeight < 60;
        });
        new ResizeObserver(() => this.#scroll()).observe(root);
    }

    /* model: the name for the greeting of an empty conversation. */
    show(conversation, isBusy, model = this.model) {
        this.conversation = conversation;
        this.isBusy = isBusy;
        this.model = model;
        this.root.replaceChildren(...conversation.messages.map((m, i) => this.#article(m, i)));
        if (!conversation.messages.length) this.root.append(greeting(model));
        this.#scroll();
    }

    /* Redraws the last message after it has grown, at most every 60 ms. */
    grew() {
        if (this.pending) return;
        this.pending = setTimeout(() => {
            this.pending = 0;
            this.#redrawLast();
        }, 60);
    }

    #redrawLast() {
        const i = this.conversation.messages.length - 1, old = this.root.lastElementChild;
        if (i < 0 || !old || this.root.children.length !== i + 1) return;
        const wasOpen = old.querySelector('.reasoning')?.open;
        old.replaceWith(this.#article(this.conversation.messages[i], i, wasOpen));
        this.#scroll();
    }

    #scroll() {
        if (this.follows) this.root.scrollTop = this.root.scrollHeight;
    }

    #article(message, i, reasoningOpen = false) {
        const isLast = i === this.conversation.messages.length - 1;
        const streams = this.isBusy && isLast && message.role === 'assistant';
        const body = message.role === 'assistant'
            ? node('div', { class: 'body' }, ...markdown(message.content))
            : node('div', { class: 'body plain' }, message.content);
        return node('article', { class: `message ${message.role}${streams ? ' streaming' : ''}`, 'aria-label': NAMES[message.role] },
            node('h3', {}, NAMES[message.role]),
            reasoningBox(message, reasoningOpen),
            ...(message.files || []).map(fileBox),
            body,
            ...message.calls.map(callBox),
            message.note ? node('p', { class: 'error', role: isLast ? 'alert' : null }, message.note) : null,
            this.isBusy ? null : this.#actionsOf(message, i, isLast));
    }

    #actionsOf(message, i, isLast) {
        const row = node('div', { class: 'actions row' });
        const add = (label, run) => row.append(node('button', { type: 'button', onclick: run, 'data-action': label.toLowerCase() }, label));
        if (message.role === 'assistant') {
            add('Retry', () => this.actions.retry(i));
            add('Copy', () => navigator.clipboard?.writeText(message.content));
        }
        if (message.role !== 'tool') add('Edit', () => this.#edit(message, i));
        if (isLast && message.calls.length) row.append(this.#callAnswers(message, i));
        return row;
    }

    #edit(message, i) {
        const field = node('textarea', { 'aria-label': 'Edit the message', rows: Math.min(12, message.content.split('\n').length + 1) });
        field.value = message.content;
        const cancel = () => {
            this.show(this.conversation, this.isBusy);
            this.root.children[i]?.querySelector('[data-action="edit"]')?.focus();
        };
        const save = () => this.actions.edit(i, field.value);
        field.addEventListener('keydown', (e) => {
            if (e.key === 'Escape') cancel();
            if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) save();
            e.stopPropagation();
        });
        this.root.children[i].replaceChildren(node('h3', {}, NAMES[message.role]), field,
            node('div', { class: 'actions row' },
                node('button', { type: 'button', onclick: save, 'data-action': 'save' }, message.role === 'user' ? 'Save and send' : 'Save'),
                node('button', { type: 'button', onclick: cancel }, 'Cancel')));
        field.focus();
    }

    /* The page runs no tools: the user enters their results. */
    #callAnswers(message, i) {
        const fields = message.calls.map((c) => node('textarea', { rows: 2, 'aria-label': `Result of ${c.name}`, placeholder: `Result of ${c.name}` }));
        return node('div', { class: 'wide' }, ...fields,
            node('button', { type: 'button', onclick: () => this.actions.answerCalls(i, fields.map((f) => f.value)) }, 'Send results'));
    }
}
