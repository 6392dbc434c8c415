"""The waypoints of a run: kept in its directory, so that later commands can replay logs that go to them."""

from __future__ import annotations

from experiments.runs.directory import RunDirectory
from taso_ext import OnnxModel
from taso_ext.graph_json import graph_from_json, graph_to_json

FILE = "checkpoints/waypoints.json"


def keep_waypoints(directory: RunDirectory, model: OnnxModel) -> None:
    """Writes the waypoints of a run's model, if there are any."""
    if len(model.waypoints):
        directory.write_json(FILE, [graph_to_json(model.waypoints[number]) for number in range(len(model.waypoints))])


def restore_waypoints(directory: RunDirectory, model: OnnxModel) -> None:
    """Adds the waypoints that an earlier command of a run has kept to its model.

    Raises:
      DamagedRun: they cannot be read.
    """
    for graph in directory.stored(FILE, lambda graphs: [graph_from_json(each) for each in graphs or []]):
        model.waypoints.add(graph)
