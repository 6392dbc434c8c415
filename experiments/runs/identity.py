"""What decides the result of a run: its settings, and fingerprints that are computed from the program and its input.

Run directories and units of work are named by them, so that nothing old is taken for something new. No fingerprint is
a number that someone has to raise for this purpose alone.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from controller.ppo.config import FORMAT_VERSION as CONTROLLER_FORMAT
from environment.substitution import features
from worldmodel.config import FORMAT_VERSION as WORLD_MODEL_FORMAT
from worldmodel.data.episodes import FORMAT_VERSION as EPISODES_FORMAT


def digest(value: Any, digits: int = 16) -> str:
    """Hexadecimal digits that differ where plain JSON values differ; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:digits]


def features_fingerprint() -> str:
    """Of what the columns of a graph observation are and mean."""
    columns = [*features.NODE_FEATURES, *features.EDGE_FEATURES]
    return digest([features.FEATURES_VERSION, columns, features.NUM_OPERATORS, features.NUM_DTYPES])


def stored_formats() -> dict[str, int]:
    """Formats of what a run keeps in its checkpoints."""
    return {"episodes": EPISODES_FORMAT, "world_model": WORLD_MODEL_FORMAT, "controller": CONTROLLER_FORMAT}
