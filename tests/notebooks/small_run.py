"""Makes the run that the committed notebooks show: `python -m tests.notebooks.small_run` (3 minutes).

The run is on a tiny BERT with a small world model, and only the files that the notebooks read are kept. Make it anew
whenever the formats of episodes or world models change.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from experiments.cli import main as rlflow

DIRECTORY = Path(__file__).parents[2] / "notebooks" / "small_run"
KEPT = (
    "config.json",
    "metrics.jsonl",
    "checkpoints/evaluation.json",
    "checkpoints/episodes",
    "checkpoints/world_model",
)
MODEL = "bert-base-tiny"
SETTINGS = {
    "environment.max_steps": 30,
    "collect.episodes": 120,
    "collect.held_out": 0.25,
    "world_model.encoder.latent": 16,
    "world_model.encoder.hidden": 32,
    "world_model.encoder.edge_hidden": 8,
    "world_model.encoder.rounds": 3,
    "world_model.encoder_training.steps": 300,
    "world_model.mdn_rnn.hidden": 64,
    "world_model.mdn_rnn.mixtures": 4,
    "world_model.mdn_rnn.head_hidden": 48,
    "world_model.mdn_rnn.latent_hidden": 64,
    "world_model.mdn_rnn.neighbours": 16,
    "world_model.mdn_rnn.neighbour_hidden": 8,
    "world_model.mdn_rnn_training.steps": 500,
    "ppo.updates": 30,
    "ppo.batch": 32,
    "evaluate.sampled_episodes": 5,
    "measure.pairs": 2,
    "measure.sessions": 1,
}


def make(directory: Path) -> None:
    """Replaces the content of `directory` by the kept files of a new run."""
    with tempfile.TemporaryDirectory() as temporary:
        run, kept = Path(temporary) / "run", Path(temporary) / "kept"
        command = ["optimise", MODEL, "-o", f"{temporary}/out.onnx", "--run-dir", str(run), "--controller", "ppo"]
        command += ["--costs", "roofline:rtx2070"]
        for key, value in SETTINGS.items():
            command += ["--set", f"{key}={value}"]
        if rlflow(command) != 0:
            raise SystemExit("the run failed; what is there already stays as it is")
        for name in KEPT:
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (run / name).is_dir() else shutil.copy)(run / name, kept / name)
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(kept, directory)


if __name__ == "__main__":
    make(DIRECTORY)
