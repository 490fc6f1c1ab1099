# SPDX-License-Identifier: Apache-2.0
"""Finds models by path or by name in the store of the program."""

from __future__ import annotations

import os
import pathlib
import sysconfig

from . import errors

_DEMO = pathlib.Path("share", "antigravity", "models", "demo")


def store_directory() -> pathlib.Path | None:
    """Return the directory in which `antigravity pull` stores models; None: there is none."""
    own = os.environ.get("ANTIGRAVITY_MODELS")
    if own:
        return pathlib.Path(own)
    data = os.environ.get("XDG_DATA_HOME")
    if data:
        return pathlib.Path(data, "antigravity", "models")
    home = os.environ.get("HOME")
    return pathlib.Path(home, ".local", "share", "antigravity", "models") if home else None


def demo_directory() -> str:
    """Return the directory of the bundled demo model."""
    roots = [
        pathlib.Path(sysconfig.get_path("data")),
        pathlib.Path(sysconfig.get_path("data", "posix_user")),
        *pathlib.Path(__file__).resolve().parents[1:4],
    ]
    for root in roots:
        if (root / _DEMO).is_dir():
            return str(root / _DEMO)
    raise errors.NotFoundError("the bundled demo model is missing; give the path of a model")


def models() -> list[pathlib.Path]:
    """Return the complete models of the store, sorted."""
    store = store_directory()
    entries = sorted(store.iterdir()) if store and store.is_dir() else []
    return [e for e in entries if not e.name.startswith(".") and e.suffix != ".part"]


def name_of(path: pathlib.Path) -> str:
    """Return the name by which a model of the store is found."""
    return path.name.removesuffix(".gguf")


def _matches(entries: list[pathlib.Path], name: str) -> list[pathlib.Path]:
    """Return the entries that match best: by file, name, name ignoring case, prefix."""
    lower = name.lower()
    for matches in (
        lambda e: e.name == name,
        lambda e: name_of(e) == name,
        lambda e: name_of(e).lower() == lower,
        lambda e: name_of(e).lower().startswith(lower),
    ):
        found = [e for e in entries if matches(e)]
        if found:
            return found
    return []


def find_model(path_or_name: str | os.PathLike[str] | None) -> str:
    """Return the path of a model.

    A path is returned as it is. A name without "/" that is not a file here is looked up in the store.
    None is the bundled model, and so is "demo" unless a model of the store has just this name.
    """
    if path_or_name is None:
        return demo_directory()
    given = os.fspath(path_or_name)
    if os.path.lexists(given):
        return given
    if os.sep in given:
        raise errors.NotFoundError(
            f"model '{given}': no such file or directory; give a GGUF file, a Hugging Face directory or "
            "a name that 'antigravity models' lists; 'antigravity pull ORG/NAME' fetches one"
        )
    found = _matches(models(), given)
    if given == "demo":
        found = [e for e in found if name_of(e) == given]
    if len(found) == 1:
        return str(found[0])
    if found:
        names = ", ".join(name_of(e) for e in found)
        raise errors.InvalidError(f"model '{given}': ambiguous: {names}; give more of the name")
    if given == "demo":
        return demo_directory()
    raise errors.NotFoundError(
        f"model '{given}': no such file or directory here, and no model of that name in "
        f"{store_directory() or 'a store'}; 'antigravity models' lists them, 'antigravity pull' fetches one"
    )
