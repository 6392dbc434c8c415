"""What an interrupted generation has finished, so that the same command goes on from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taso_ext.files import write_text

_LIBRARY = Path(__file__).parents[1]


class Checkpoint:
    """A folder of finished domains and judged rules; its name depends on all that the result depends on."""

    def __init__(self, directory: Path, *settings: object) -> None:
        self._directory = directory / _digest(settings)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._judged_path = self._directory / "judged.jsonl"
        self._judged: dict[str, Any] = dict(_read_lines(self._judged_path))

    def domain(self, name: str, enumerate_domain: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a domain: from the folder, or else computed and kept there."""
        path = self._directory / f"{name}.json"
        if path.is_file():
            result: dict[str, Any] = json.loads(path.read_text())
            return result
        result = enumerate_domain()
        write_text(path, json.dumps(result))
        return result

    def judged(self, text: str, judge: Callable[[], Any]) -> Any:
        """What `judge` says of a text, asked once; a JSON value."""
        if text not in self._judged:
            self._judged[text] = judge()
            with self._judged_path.open("a") as file:
                file.write(json.dumps([text, self._judged[text]]) + "\n")
        return self._judged[text]


def _read_lines(path: Path) -> list[tuple[str, Any]]:
    """All complete lines; a kill can leave half a line at the end."""
    lines = path.read_text().split("\n")[:-1] if path.is_file() else []
    return [tuple(json.loads(line)) for line in lines]


def _digest(settings: object) -> str:
    """Of the settings and of the code that they are given to."""
    digest = hashlib.sha256(repr(settings).encode())
    code = [*_LIBRARY.glob("*.so"), *_LIBRARY.glob("generator/*.py"), *_LIBRARY.glob("verify/**/*.py")]
    for path in sorted(code):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
