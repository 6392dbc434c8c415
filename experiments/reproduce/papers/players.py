"""The rows of the papers' figures: what they print is compared with two presets of the same controllers.

    greedy       steepest descent
    taso         TASO's search, with the papers' budget
    paper real   their model-free agent, with its faults mended and nothing added
    paper dream  their agent in its world model, likewise
    ppo real     our model-free agent
    ppo dream    our agent in its world model
    ppo exact    the same where the engine follows its dreams

All but the papers' agents are rows of `rlflow reproduce controllers`, and their runs are the same. Learning has the
presets `paper-cut` and `demo`, which take minutes on one core; with `--long`, it has `paper` and `best`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from experiments.config.effect import effective
from experiments.config.run import RunConfig, load_config
from experiments.reproduce.options import add_graphs, add_seeds, named
from experiments.reproduce.search.controllers import PEERS
from experiments.reproduce.search.controllers import PLAYERS as ALL
from experiments.reproduce.search.plays import ROUNDS, Player

SHORT = {"paper": "paper-cut", "best": "demo"}
"""The short form of each preset."""
SCHEDULE: Mapping[str, Callable[[RunConfig], int]] = {
    "episodes of random play": lambda config: config.collect.episodes,
    "gradient steps of the encoder": lambda config: config.world_model.encoder_training.steps,
    "gradient steps of the MDN-RNN": lambda config: config.world_model.mdn_rnn_training.steps,
    "epochs of the controller in the dream": lambda config: config.ppo.updates,
    "epochs of the model-free controller": lambda config: config.ppo_real.updates,
}
"""How much a preset learns, by what is counted."""
PUBLISHED: Mapping[str, Player] = {
    f"paper {world}": Player("ppo", (f"world={world}", "collect.processes=1"), preset=SHORT["paper"])
    for world in ("real", "dream")
}
"""The papers' agents; units that run side by side collect with one process each."""
PLAYERS: Mapping[str, Player] = {
    "greedy": ALL["greedy"],
    "taso": ALL["taso"],
    **PUBLISHED,
    "ppo real": ALL["ppo real"],
    "ppo dream": ALL["ppo dream"],
    "ppo exact": ALL["ppo exact"],
}
"""The rows by name."""
DREAMED, REAL = ("paper dream", "ppo dream"), ("paper real", "ppo real")
"""The rows that learn in a world model, and those that learn without one."""


def add_runs(parser: argparse.ArgumentParser, graphs: Sequence[str], seeds: str, rows: Iterable[str]) -> None:
    """Adds the options of a figure of runs: graphs, seeds, rows and `--long`, with their defaults."""
    add_graphs(parser, ", ".join(graphs))
    add_seeds(parser, seeds)
    add_rows(parser, rows)
    add_long(parser)


def add_rows(parser: argparse.ArgumentParser, rows: Iterable[str]) -> None:
    """Adds the option for some of the rows of a table or figure."""
    parser.add_argument("--rows", metavar="A,B,…", help=f"controllers (all: {', '.join(rows)})")


def add_long(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the full presets."""
    parser.add_argument(
        "--long",
        action="store_true",
        help="give learning the presets paper and best instead of paper-cut and demo: about ten times as long",
    )


def chosen_players(rows: Sequence[str], options: argparse.Namespace) -> dict[str, Player]:
    """Returns the players of rows of `PLAYERS`, `controllers` or `peers`, with the presets that `--long` names."""
    known = {**ALL, **PEERS, **PLAYERS}
    players = {row: known[row] for row in rows}
    return {row: _longer(player) for row, player in players.items()} if options.long else players


def named_players(rows: Iterable[str], options: argparse.Namespace) -> dict[str, Player]:
    """Returns the players of those rows that the option names; all if it names none.

    Raises:
      UserError: there is no such row.
    """
    return chosen_players(list(named(options.rows, dict.fromkeys(rows), "row")), options)


def presets_of(players: Mapping[str, Player]) -> str:
    """Returns sentences on the presets of the rows that learn, and on what their schedules are cut to."""
    rows: dict[str, list[str]] = {}
    for row, player in players.items():
        if player.learns:
            rows.setdefault(player.preset, []).append(f"`{row}`")
    said = [
        f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} the preset `{preset}`."
        for preset, names in rows.items()
    ]
    return " ".join([*said, *_rounds_of(players), *cuts_of(rows)])


def _rounds_of(players: Mapping[str, Player]) -> Iterator[str]:
    """Yields a sentence on what the rows that learn in dreams change in their preset at full scale."""
    changed = [row for row, player in players.items() if _has_other_rounds(player)]
    if changed:
        names = " and ".join(f"`{row}`" for row in changed)
        yield f"At full scale, {names} {'has' if len(changed) == 1 else 'have'} other rounds: {', '.join(ROUNDS)}."


def _has_other_rounds(player: Player) -> bool:
    usual, changed = (
        effective(load_config(player.preset, {"controller": player.controller}, (*changes, *player.settings)))
        for changes in ((), player.changes("full"))
    )
    return usual != changed


def cuts_of(presets: Iterable[str]) -> list[str]:
    """Returns a sentence for each short form among the presets, which says how the schedule of its preset is cut."""
    return [_cut_of(preset, short) for preset, short in SHORT.items() if short in presets]


def _cut_of(preset: str, short: str) -> str:
    whole, cut = load_config(preset, {}), load_config(short, {})
    parts = [f"{get(cut):,} of {get(whole):,} {about}" for about, get in SCHEDULE.items()]
    return f"`{short}` is the schedule of `{preset}` cut to {', '.join(parts[:-1])} and {parts[-1]}."


def _longer(player: Player) -> Player:
    """Returns a player that learns with the preset that its own is the short form of."""
    longer = {short: preset for preset, short in SHORT.items()}
    return dataclasses.replace(player, preset=longer[player.preset]) if player.learns else player
