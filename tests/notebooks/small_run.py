"""Makes what the committed notebooks read: `python -m tests.notebooks.small_run [NAME …]` (15 minutes for all).

| name | what it is |
|---|---|
| `small_run` | a run of PPO in the dream of a small world model of a tiny BERT, under the costs of a formula |
| `noisy_run` | the same under measured costs, which are drawn anew in every episode |
| `temperature_sweep` | what policies score in the dream and for real, by the temperature of their dream |
| `fusion_run` | a small model of the advantages of fusion decisions, learned on four tiny training graphs |

Their dreams predict which rewrites are legal, because that is what the notebooks look at; the engine follows those of
the presets `demo` and `best`. Only the files that the notebooks read are kept. Make them anew whenever the formats of
episodes, world models or points of sweeps change. Nothing is read from, or written to, the user's own database of
prices.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from experiments.cli import main as rlflow
from experiments.sweeps.point import POINTS
from experiments.sweeps.sweep import FILE

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
KEPT_OF_RUN = (
    "config.json",
    "metrics.jsonl",
    "checkpoints/evaluation.json",
    "checkpoints/episodes",
    "checkpoints/world_model",
)
KEPT_OF_SWEEP = (FILE, POINTS)
ADVANTAGES = "advantages.npz"
FUSED = ("nasrnn-tiny", "vit-base-tiny", "dalle-mini-tiny", "t5-small-tiny")
MODEL = "bert-base-tiny"
EXACT: Mapping[str, object] = {"costs": "roofline:rtx2070"}
NOISY: Mapping[str, object] = {
    "costs": "measured:cpu:noise=resampled",
    "measure.predict": "false",
    "search.rounds": 1,
    "search.retiming_seconds": 0,
}
"""Costs are sums of the times of kernels, each of which is timed once and scatters in every episode anew."""
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
    "dream.legality": "predicted",
    "recollect.rounds": 0,
    "recollect.more": 0,
    "evaluate.sampled_episodes": 5,
    "evaluate.climb_seconds": 0,
    "measure.pairs": 2,
    "measure.sessions": 1,
}
OF_SWEEP: Mapping[str, object] = {
    **NOISY,
    "collect.episodes": 60,
    "world_model.encoder_training.steps": 150,
    "world_model.mdn_rnn_training.steps": 300,
    "ppo.updates": 15,
}
AXES = {"dream.temperature": "0,1,2", "seed": "0..2"}


def settings(changed: Mapping[str, object]) -> list[str]:
    """Returns the arguments `--set` of a run or a sweep that changes some of the settings above."""
    values = {"controller": "ppo", **SETTINGS, **changed}
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def run_with(changed: Mapping[str, object]) -> Callable[[Path], list[str]]:
    """Returns the command of a run, by the folder that it may write into."""
    return lambda folder: [
        *("optimise", MODEL, "-o", str(folder / "out.onnx"), "--run-dir", str(folder / "made"), "--preset", "best"),
        *settings(changed),
    ]


def sweep(folder: Path) -> list[str]:
    """Returns the command of the sweep, by the folder that it may write into."""
    axes = [part for key, values in AXES.items() for part in ("--over", f"{key}={values}")]
    return ["sweep", MODEL, *axes, "--base", "best", *settings(OF_SWEEP), "-o", str(folder / "made")]


def by_command(arguments: Callable[[Path], list[str]]) -> Callable[[Path], bool]:
    """Returns what runs a command in a folder, and returns whether it was successful."""
    return lambda folder: rlflow(arguments(folder)) == 0


def learn_advantages(folder: Path) -> bool:
    """Learns advantages of fusion decisions."""
    from controller.fusion.advantages import AdvantageConfig, AdvantageModel
    from controller.fusion.samples import collect
    from environment.fusion import load

    graphs = [load(f"{name}:training=adam", "v100") for name in FUSED]
    model = AdvantageModel(AdvantageConfig(hidden=32, steps=800, batch=256))
    model.train([(graph, collect(graph, 20)) for graph in graphs])
    (folder / "made").mkdir()
    model.save(folder / "made" / ADVANTAGES)
    return True


MADE: Mapping[str, tuple[Callable[[Path], bool], Sequence[str]]] = {
    "small_run": (by_command(run_with(EXACT)), KEPT_OF_RUN),
    "noisy_run": (by_command(run_with(NOISY)), KEPT_OF_RUN),
    "temperature_sweep": (by_command(sweep), KEPT_OF_SWEEP),
    "fusion_run": (learn_advantages, (ADVANTAGES,)),
}
"""What makes each folder, and the files that are kept of what it writes."""


def make(name: str) -> None:
    """Replaces a folder by the kept files of a new run."""
    maker, names = MADE[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder, kept = Path(temporary), Path(temporary) / "kept"
        if not maker(folder):
            raise SystemExit(f"{name} failed; what is there already stays as it is")
        for each in names:
            (kept / each).parent.mkdir(parents=True, exist_ok=True)
            made = folder / "made" / each
            (shutil.copytree if made.is_dir() else shutil.copy)(made, kept / each)
        shutil.rmtree(NOTEBOOKS / name, ignore_errors=True)
        shutil.copytree(kept, NOTEBOOKS / name)


def main(names: Sequence[str]) -> None:
    """Makes the named folders, or all if none is named; they share a new database of prices."""
    unknown = [name for name in names if name not in MADE]
    if unknown:
        raise SystemExit(f"There is no {', '.join(unknown)}; what can be made: {', '.join(MADE)}")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for name in names or MADE:
            make(name)


if __name__ == "__main__":
    main(sys.argv[1:])
