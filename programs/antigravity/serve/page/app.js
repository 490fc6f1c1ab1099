/* SPDX-License-Identifier: Apache-2.0 */
/* The page: connects its parts. */
import { answer, figuresText, newMessage, requestBody } from './answer.js';
import { getJson } from './api.js';
import { Attachments } from './attachments.js';
import { CacheView } from './cache.js';
import { node } from './markdown.js';
import { askForKey, offerPolicies, openSettings, setUpSettings, showDefaults } from './settings.js';
import { Store } from './store.js';
import { Transcript } from './transcript.js';

const $ = (id) => document.getElementById(id);
const store = new Store();
const cache = new CacheView();
let running = null; /* AbortController of the answer that is coming */

const attachments = new Attachments($('attachments'), (fault) => { $('figures').textContent = fault; });

const transcript = new Transcript($('transcript'), { retry, edit, answerCalls });

function announce(text) {
    $('announce').textContent = text;
}

function save() {
    if (!store.save()) $('figures').textContent = 'This browser has no space left for conversations: export and delete some.';
}

/* ---- display ---- */

function showList() {
    const found = store.matching($('search').value);
    $('no-match').hidden = found.length > 0;
    $('conversations').replaceChildren(...found.map((c) => {
        const title = c.title || 'New conversation';
        const open = node('button', { type: 'button', 'aria-current': c === store.current ? 'true' : null, onclick: () => select(c.id) }, title);
        const name = node('button', { type: 'button', class: 'rename', 'aria-label': `Rename “${title}”`, onclick: () => rename(c, open) }, '✎');
        const remove = node('button', { type: 'button', class: 'delete', 'aria-label': `Delete “${title}”`, onclick: () => removeOne(c) }, '✕');
        return node('li', {}, open, name, remove);
    }));
}

/* Puts a field in place of the conversation's button. Enter and leaving the field rename, Esc does not. */
function rename(c, button) {
    const field = node('input', { type: 'text', maxlength: 200, 'aria-label': 'Name of the conversation' });
    let isDone = false;
    const end = (isKept) => {
        if (isDone) return;
        isDone = true;
        if (isKept && field.value.trim() !== c.title) {
            store.rename(c, field.value);
            save();
        }
        show();
    };
    field.value = c.title;
    field.addEventListener('blur', () => end(true));
    field.addEventListener('keydown', (e) => {
        if (e.key === 'Enter' && !e.isComposing) end(true);
        if (e.key === 'Escape') end(false);
        e.stopPropagation();
    });
    button.replaceWith(field);
    field.select();
}

function show() {
    const c = store.current;
    $('title').textContent = c.title || 'Antigravity';
    document.title = c.title ? `${c.title} · Antigravity` : 'Antigravity';
    $('system').value = c.system;
    $('system-box').open = !!c.system && !c.messages.length;
    showList();
    transcript.show(c, !!running, $('model').value);
    $('send').hidden = !!running;
    $('stop').hidden = !running;
}

function select(id) {
    stop();
    store.select(id);
    leaveList();
    show();
    $('input').focus();
}

function removeOne(c) {
    if (c.messages.length && !confirm(`Delete “${c.title}”?`)) return;
    if (c === store.current) stop();
    store.remove(c.id);
    save();
    show();
}

const isNarrow = () => matchMedia('(max-width: 44rem)').matches;
const listIsOpen = () => (isNarrow() ? $('list').classList.contains('open') : !$('list').classList.contains('closed'));

function toggleList(open) {
    $('list').classList.toggle(isNarrow() ? 'open' : 'closed', isNarrow() === open);
    $('open-list').setAttribute('aria-expanded', String(open));
}

/* On a phone the list covers the conversation. */
function leaveList() {
    if (isNarrow()) toggleList(false);
}

/* ---- answers ---- */

async function ask() {
    const conversation = store.current;
    const controller = new AbortController();
    let body;
    try {
        body = requestBody(conversation, store.settings, $('model').value);
    } catch (e) {
        $('figures').textContent = `The tools are not valid JSON: ${e.message}`;
        return;
    }
    const message = newMessage('assistant', '');
    conversation.messages.push(message);
    running = controller;
    transcript.follows = true;
    announce('The model answers.');
    store.touch(conversation);
    show();
    cache.busy(true);
    try {
        const figures = await answer(body, message, controller.signal,
            (headers) => cache.follow(headers.get('X-Request-Id')), () => store.current === conversation && transcript.grew());
        $('figures').textContent = figuresText(figures);
        announce(figures.finish === 'stopped' ? 'Stopped.' : `The model says: ${message.content}`);
    } catch (e) {
        failed(e, conversation, message);
    }
    cache.busy(false);
    if (running === controller) running = null;
    save();
    show();
    if (document.activeElement === document.body) $('input').focus();
}

function failed(e, conversation, message) {
    message.note = e.status ? `${e.message} (${e.status})` : e.message || 'The server cannot be reached.';
    announce(`Failed: ${message.note}`);
    if (e.status !== 401) return;
    conversation.messages = conversation.messages.filter((m) => m !== message);
    askForKey(e.message, () => { loadModels(); ask(); });
}

function send() {
    const text = $('input').value;
    if (running || (!text.trim() && !attachments.files.length)) return;
    $('input').value = '';
    grow();
    store.current.messages.push(newMessage('user', text, attachments.take()));
    ask();
}

function stop() {
    if (!running) return;
    running.abort();
    running = null;
}

function retry(i) {
    if (running) return;
    store.current.messages.length = i;
    ask();
}

function edit(i, text) {
    if (running) return;
    const message = store.current.messages[i];
    message.content = text;
    if (message.role === 'user') {
        store.current.messages.length = i + 1;
        ask();
        return;
    }
    store.touch(store.current);
    save();
    show();
}

function answerCalls(i, texts) {
    const { messages } = store.current;
    messages[i].calls.forEach((c, k) => messages.push({ ...newMessage('tool', texts[k]), callId: c.id }));
    ask();
}

/* ---- export and import ---- */

function exportAll() {
    const url = URL.createObjectURL(new Blob([store.exported()], { type: 'application/json' }));
    const a = node('a', { href: url, download: 'conversations.json' });
    a.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function importFile() {
    const file = $('import-file').files[0];
    $('import-file').value = '';
    if (!file) return;
    try {
        const n = store.import(await file.text());
        announce(`${n} conversations have been imported.`);
        save();
        show();
    } catch (e) {
        $('figures').textContent = `${file.name}: ${e.message}`;
    }
}

/* ---- events ---- */

const THEMES = { auto: ['light', 'as the system', '◐'], light: ['dark', 'light', '☀'], dark: ['auto', 'dark', '☾'] };

function showTheme() {
    const [, name, sign] = THEMES[document.documentElement.dataset.theme];
    $('theme').textContent = sign;
    $('theme').setAttribute('aria-label', `Theme: ${name}`);
    cache.draw();
}

function switchTheme() {
    const theme = THEMES[document.documentElement.dataset.theme][0];
    document.documentElement.dataset.theme = theme;
    localStorage.setItem('antigravity.theme', theme);
    showTheme();
}

async function loadModels() {
    try {
        const list = (await getJson('/v1/models')).data || [], presets = (await getJson('/presets')).data || [];
        const names = [...list.map((m) => m.id), ...presets.map((p) => p.name)];
        $('model').replaceChildren(...list.map((m) => node('option', { value: m.id }, m.id)));
        if (presets.length)
            $('model').append(node('optgroup', { label: 'Presets' }, ...presets.map((p) => node('option', { value: p.name }, p.name))));
        if (names.includes(store.settings.model)) $('model').value = store.settings.model;
        if (!store.current.messages.length) show();
        const props = await getJson('/props');
        offerPolicies(props.kv_policies || []);
        showDefaults(props.default_generation_settings?.params || {});
    } catch (e) {
        if (e.status === 401) askForKey(e.message, loadModels);
        else $('figures').textContent = `The models cannot be listed: ${e.message}`;
    }
}

/* Sets the height of the field to that of its text. */
function grow() {
    const field = $('input');
    field.rows = Math.min(12, field.value.split('\n').length);
}

function keys(e) {
    if (e.key === 'Escape' && running && !document.querySelector('dialog[open]')) stop();
    if (e.key.toLowerCase() === 'o' && e.ctrlKey && e.shiftKey) {
        e.preventDefault();
        $('new').click();
    }
}

function inputKeys(e) {
    /* Enter that ends the composition of a character does not send. */
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        send();
    } else if (e.key === 'ArrowUp' && !$('input').value) {
        const mine = document.querySelectorAll('.message.user [data-action="edit"]');
        if (mine.length) {
            e.preventDefault();
            mine[mine.length - 1].click();
        }
    }
}

function connect() {
    $('send').addEventListener('click', send);
    $('stop').addEventListener('click', stop);
    $('input').addEventListener('keydown', inputKeys);
    $('input').addEventListener('input', grow);
    document.addEventListener('keydown', keys);
    $('new').addEventListener('click', () => { stop(); store.create(); leaveList(); show(); $('input').focus(); });
    $('open-list').addEventListener('click', () => toggleList(!listIsOpen()));
    $('export').addEventListener('click', exportAll);
    $('import').addEventListener('click', () => $('import-file').click());
    $('import-file').addEventListener('change', importFile);
    $('delete-all').addEventListener('click', () => {
        if (!confirm('Delete all conversations?')) return;
        stop();
        store.removeAll();
        save();
        show();
    });
    $('system').addEventListener('change', () => { store.current.system = $('system').value; save(); });
    $('model').addEventListener('change', () => {
        store.settings.model = $('model').value;
        store.saveSettings();
        if (!store.current.messages.length) show();
    });
    $('search').addEventListener('input', showList);
    $('attach').addEventListener('click', () => $('attach-file').click());
    $('attach-file').addEventListener('change', async () => {
        await attachments.add([...$('attach-file').files]);
        $('attach-file').value = '';
        $('input').focus();
    });
    $('composer').addEventListener('dragover', (e) => e.preventDefault());
    $('composer').addEventListener('drop', (e) => {
        e.preventDefault();
        attachments.add([...e.dataTransfer.files]);
    });
    $('theme').addEventListener('click', switchTheme);
    $('open-cache').addEventListener('click', () => cache.toggle());
    $('close-cache').addEventListener('click', () => { cache.toggle(); $('open-cache').focus(); });
    $('open-settings').addEventListener('click', openSettings);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => cache.draw());
}

setUpSettings(store);
store.watch(() => !!running, () => (running ? showList() : show()));
connect();
showTheme();
$('open-list').setAttribute('aria-expanded', String(listIsOpen()));
show();
loadModels();
$('input').focus();
