#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks tools/terminal_svg.py with recorded frames, and the picture in docs/images.

    terminal_svg.py SOURCE_DIR
"""
import importlib.util
import pathlib
import sys
import unittest
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(sys.argv.pop(1))
SVG = "{http://www.w3.org/2000/svg}"
FRAMES = [
    (7.0, ["$ "]),
    (7.5, ["$ "]),
    (8.0, ["$ a < b & \"c\"", "\x1b[1mbold\x1b[0m  \x1b[2;31mdim\x1b[39m"]),
    (9.0, ["$ a < b & \"c\"", "last"]),
]


def load():
    spec = importlib.util.spec_from_file_location("terminal_svg", ROOT / "tools/terminal_svg.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TerminalSvg(unittest.TestCase):
    def setUp(self):
        self.tool = load()
        self.text = self.tool.picture(FRAMES, 20, 3, "a & b")
        self.root = xml.fromstring(self.text)

    def strip(self, row):
        return [text.text for text in self.root.findall(f".//{SVG}g[@id='r{row}']/{SVG}text")]

    def test_drops_equal_frames(self):
        self.assertEqual([seconds for seconds, _ in self.tool.distinct(FRAMES)], [7.0, 8.0, 9.0])

    def test_escapes_text(self):
        self.assertEqual(self.strip(0), ["$", "$ a < b & \"c\""])
        self.assertEqual(self.root.find(f"{SVG}title").text, "a & b")

    def test_rows_change_at_their_frames(self):
        total = 2 + self.tool.HOLD
        style = self.root.find(f"{SVG}style").text
        for row, times in (0, [0, 1]), (1, [0, 1, 2]):
            keyframes = style.split(f"@keyframes k{row}{{")[1].split("\n")[0]
            self.assertEqual(keyframes.count("translateY"), len(times))
            for time in times:
                self.assertIn(f"{100 * time / total:.2f}%{{", keyframes)

    def test_shows_the_last_frame_without_animation(self):
        style = self.root.find(f"{SVG}style").text
        self.assertIn(f"#r1{{transform:translateY(-{2 * self.tool.LINE}px);", style)
        self.assertIn("prefers-reduced-motion", style)

    def test_empty_rows_are_left_out(self):
        self.assertIsNone(self.root.find(f".//{SVG}g[@id='r2']"))

    def test_attributes_and_columns(self):
        bold, dim = self.root.findall(f".//{SVG}g[@id='r1']/{SVG}text")[:2]
        self.assertEqual((bold.text, bold.get("class"), bold.get("x")), ("bold", "b", "0"))
        self.assertEqual((dim.text, dim.get("class"), dim.get("x")), ("dim", "d", f"{6 * self.tool.CELL:g}"))
        self.assertEqual(dim.get("fill"), self.tool.COLOURS[1])

    def test_picture_of_the_readme_is_self_contained(self):
        text = (ROOT / "docs/images/chat.svg").read_text(encoding="utf-8")
        root = xml.fromstring(text)
        self.assertLess(len(text.encode()), 60_000)
        self.assertIn("prefers-reduced-motion", text)
        for outside in ("script", "image", "use", "a"):
            self.assertIsNone(root.find(f".//{SVG}{outside}"))
        for outside in ("url(", "@import", "@font-face", "href"):
            self.assertNotIn(outside, text)


if __name__ == "__main__":
    unittest.main()
