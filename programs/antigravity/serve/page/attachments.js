/* SPDX-License-Identifier: Apache-2.0 */
/* Text files that are attached to the next message. */
import { node } from './markdown.js';

const MAX_BYTES = 1 << 20;

/* Returns the message that the server gets: each file in a block of code that is longer than any in it. */
export function withFiles(content, files) {
    return [...(files || []).map(({ name, text }) => {
        const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map((m) => m[0].length));
        const fence = '`'.repeat(longest + 1);
        return `${name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}`;
    }), content].filter(Boolean).join('\n\n');
}

export class Attachments {
    /* onFault(text) is called for a file that is not attached. */
    constructor(list, onFault) {
        this.list = list;
        this.onFault = onFault;
        this.files = [];
    }

    async add(chosen) {
        for (const file of chosen) {
            if (file.size > MAX_BYTES) {
                this.onFault(`${file.name}: the file is too large; at most 1 MiB can be attached.`);
                continue;
            }
            try {
                const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
                if (text.includes('\0')) throw new TypeError();
                this.files.push({ name: file.name, text });
            } catch {
                this.onFault(`${file.name}: not a text in UTF-8; only texts can be attached.`);
            }
        }
        this.#show();
    }

    /* Returns the files and forgets them. */
    take() {
        const { files } = this;
        this.files = [];
        this.#show();
        return files;
    }

    #show() {
        this.list.replaceChildren(...this.files.map((file) => node('li', {}, node('span', {}, file.name),
            node('button', { type: 'button', 'aria-label': `Remove ${file.name}`, onclick: () => this.#remove(file) }, '✕'))));
    }

    #remove(file) {
        this.files = this.files.filter((f) => f !== file);
        this.#show();
    }
}
