#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a terminal session in tmux and writes it as one animated SVG.

    tools/terminal_svg.py SCRIPT OUT.svg

The pictures of README.md are made again, from the root of the repository, by

    PATH=$PWD/build/release/bin:$PATH tools/terminal_svg.py tools/terminal_chat.txt docs/images/chat.svg

A script has one command a line; a line that starts with # is a comment.

    size COLUMNS ROWS   the terminal; comes first
    type TEXT           types the text
    key NAME            presses a key by its name in tmux: Enter, C-c, Up
    wait SECONDS        records for this time
    until SECONDS TEXT  records until the last line that is not empty is TEXT; fails after SECONDS

A frame is the output of `tmux capture-pane -e -p`. Equal frames are dropped. Each row of the terminal
is a strip of its distinct lines, which CSS moves; a viewer that prefers reduced motion, or has no CSS
animation, shows the last frame.
"""
import html
import os
import re
import subprocess
import sys
import time

STEP = 0.1  # seconds between frames
TYPED = 4  # characters typed in a step
HOLD = 4.0  # seconds that the last frame stays
CELL, LINE, PADDING = 8.0, 18, 12  # pixels
COLOURS = ["#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4"]
STYLE = """svg{background:#0d1117;font:13.3px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3}
.b{font-weight:bold}.d{opacity:.6}
@media(prefers-reduced-motion:reduce){g{animation:none!important}}"""


def spans(line):
    """Returns [(column, text, classes, colour)] of a line with SGR sequences. Other sequences are dropped.

    A text ends before two blanks, which SVG would show as one."""
    found, column, bold, dim, colour = [], 0, False, False, None
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            for words in re.finditer(r"[^ ]+(?: [^ ]+)*", part):
                found.append((column + words.start(), words[0], " ".join("b" * bold + "d" * dim), colour))
            column += len(part)
            continue
        for code in part[2:-1].split(";"):
            number = int(code or 0)
            if number in (0, 22):
                bold = dim = False
            if number in (0, 39):
                colour = None
            bold = bold or number == 1
            dim = dim or number == 2
            if 30 <= number <= 37 or 90 <= number <= 97:
                colour = COLOURS[number % 10]
    return found


def text_elements(line, y):
    """Returns the SVG of one line of a terminal."""
    out = ""
    for column, text, classes, colour in spans(line):
        attributes = f' class="{classes}"' if classes else ""
        attributes += f' fill="{colour}"' if colour else ""
        out += f'<text x="{column * CELL:g}" y="{y}"{attributes}>{html.escape(text, quote=False)}</text>'
    return out


def distinct(frames):
    """Drops frames that equal the one before."""
    kept = []
    for seconds, lines in frames:
        if not kept or kept[-1][1] != lines:
            kept.append((seconds, lines))
    return kept


def row_strip(row, frames, total):
    """Returns the CSS and the SVG of a row: its distinct lines, one after the other, and when each is seen."""
    shown, keyframes, strip = [], [], ""
    for seconds, lines in frames:
        line = lines[row] if row < len(lines) else ""
        if shown and shown[-1] == line:
            continue
        keyframes.append(f"{100 * seconds / total:.2f}%{{transform:translateY({-LINE * len(shown)}px)}}")
        strip += text_elements(line, LINE * len(shown) + LINE - 5)
        shown.append(line)
    if not strip:
        return "", ""
    css = f"#r{row}{{transform:translateY({LINE - LINE * len(shown)}px)"
    if len(shown) > 1:
        css += f";animation:k{row} {total:.2f}s step-end infinite}}\n@keyframes k{row}{{{''.join(keyframes)}"
    place = f'y="{PADDING + row * LINE}" height="{LINE}"'
    return css + "}\n", f'<svg x="{PADDING}" {place}><g id="r{row}">{strip}</g></svg>\n'


def picture(frames, columns, rows, title):
    """Returns the SVG of frames [(seconds, lines with SGR sequences)]; it starts with the first one."""
    frames = [(seconds - frames[0][0], lines) for seconds, lines in distinct(frames)]
    total = frames[-1][0] + HOLD
    strips = [row_strip(row, frames, total) for row in range(rows)]
    width, height = columns * CELL + 2 * PADDING, rows * LINE + 2 * PADDING
    title = html.escape(title)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}"'
            f' height="{height}" role="img" aria-label="{title}"><title>{title}</title>'
            f"<style>{STYLE}\n{''.join(css for css, _ in strips)}</style>\n"
            f"{''.join(svg for _, svg in strips)}</svg>\n")


class Recorder:
    """A terminal in a tmux server of its own."""

    def __init__(self, columns, rows):
        self.server = ["tmux", "-L", f"terminal_svg{os.getpid()}", "-f", os.devnull]
        self.frames = []
        shell = "env PS1='$ ' bash --norc --noprofile"
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), shell)
        while not self.capture():
            time.sleep(STEP)
        self.frames = self.frames[-1:]

    def tmux(self, *words):
        return subprocess.run(self.server + list(words), check=True, text=True, capture_output=True).stdout

    def capture(self):
        lines = self.tmux("capture-pane", "-e", "-p").split("\n")
        while lines and not lines[-1].strip():
            lines.pop()
        self.frames.append((time.monotonic(), lines))
        return lines

    def wait(self, seconds, text=None):
        """Records for `seconds`, or until the last line that is not empty is `text`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lines = self.capture()
            if text and lines and lines[-1].strip() == text:
                return
            time.sleep(STEP)
        if text:
            sys.exit(f"terminal_svg: the last line is not '{text}' after {seconds:g} s; the screen:\n"
                     + "\n".join(self.frames[-1][1]))

    def play(self, command, rest):
        if command == "type":
            for i in range(0, len(rest), TYPED):
                self.tmux("send-keys", "-l", "--", rest[i:i + TYPED])
                self.wait(STEP)
        elif command == "key":
            self.tmux("send-keys", rest)
            time.sleep(STEP)
        elif command == "wait":
            self.wait(float(rest))
        elif command == "until":
            seconds, text = rest.split(" ", 1)
            self.wait(float(seconds), text)
        else:
            sys.exit(f"terminal_svg: unknown command '{command}'")

    def close(self):
        subprocess.run(self.server + ["kill-server"], check=False, capture_output=True)


def record(commands):
    """Plays the commands after `size`. Returns the frames."""
    recorder = Recorder(*map(int, commands[0][1].split()))
    try:
        for command, rest in commands[1:]:
            recorder.play(command, rest)
        return recorder.frames
    finally:
        recorder.close()


def read_script(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    commands = [line.partition(" ")[::2] for line in lines if line and not line.startswith("#")]
    if not commands or commands[0][0] != "size":
        sys.exit(f"terminal_svg: {path}: the first command must be size COLUMNS ROWS")
    return commands


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: terminal_svg.py SCRIPT OUT.svg")
    commands = read_script(sys.argv[1])
    columns, rows = map(int, commands[0][1].split())
    typed = "; ".join(rest for command, rest in commands if command == "type")
    text = picture(record(commands), columns, rows, f"Terminal session: {typed}")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)
    print(f"{sys.argv[2]}: {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
