"""What the wheel has of each module: what nobody calls by name is there without docstrings and comments.

Every call is there twice, to be awaited and to block, and the wheel is to stay small. Public modules keep the
docstrings of all that is public; what is said of calls that block holds for those to be awaited, which have the same
names. A checkout and its editable install have everything.
"""

from __future__ import annotations

import ast
import io
import shutil
import tempfile
import tokenize
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Modules whose texts people read: their names are the package's.
PUBLIC = {
    "_sync/audits.py",
    "_sync/curator.py",
    "_sync/datasets.py",
    "_sync/log.py",
    "_sync/releases.py",
    "_sync/session.py",
    "answers.py",
    "conditions.py",
    "errors.py",
    "mechanisms.py",
    "models.py",
    "questions.py",
    "results.py",
    "verdict.py",
}


def shortened(source: str, *, read: bool) -> str:
    """A module without lines of comment and without docstrings, but for those of public classes and where nothing else
    would be left. It does the same.

    Args:
        source: of the module.
        read: whether people read its texts: it keeps those of all that has a public name.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Module):
            public = read
        else:
            public = (read and not node.name.startswith("_")) or (
                isinstance(node, ast.ClassDef) and node.name.startswith("Async")
            )
        if not public and len(node.body) > 1 and ast.get_docstring(node) is not None:
            begin, end = node.body[0].lineno, node.body[0].end_lineno or 0
            # As many lines as there were: places of what is behind are those of the source.
            lines[begin - 1 : end] = [""] * (end - begin + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            lines[token.start[0] - 1] = ""
    return "".join(lines)


class Shortened(BuildHookInterface):  # type: ignore[type-arg]
    """Puts such modules into the wheel in the place of those in the folder."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel is built, and not for an editable one, which is the folder itself."""
        if version == "editable":
            return
        self._made = Path(tempfile.mkdtemp(prefix="curator-client-"))
        package = Path(self.root) / "curator_client"
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package).as_posix()
            target = self._made / name
            target.parent.mkdir(parents=True, exist_ok=True)
            content = shortened(path.read_text(encoding="utf-8"), read=name in PUBLIC)
            target.write_text(content, encoding="utf-8")
            build_data["force_include"][str(target)] = f"curator_client/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Once it is built."""
        if version != "editable":
            shutil.rmtree(self._made, ignore_errors=True)
