"""`MessagePassingRound`: every node sums up messages from its neighbours."""

from __future__ import annotations

import sonnet as snt
from graph_nets import graphs as gn_graphs
from graph_nets import modules

from worldmodel.networks.segment_ops import segment_mean, segment_sum


class MessagePassingRound(snt.Module):
    """One `graph_nets` GraphNetwork round with residual connections and LayerNorm; edges keep their embedding.

    Edges have to be in the order of their receivers.

    Args:
      hidden: width of nodes and globals.
    """

    def __init__(self, hidden: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self._network = modules.GraphNetwork(
            edge_model_fn=lambda: snt.nets.MLP([hidden], activate_final=True),
            node_model_fn=lambda: snt.nets.MLP([hidden, hidden]),
            global_model_fn=lambda: snt.nets.MLP([hidden, hidden]),
            reducer=segment_sum,
            edge_block_opt={"use_globals": False, "use_receiver_nodes": False},
            node_block_opt={"use_sent_edges": False},
            global_block_opt={"use_edges": False, "nodes_reducer": segment_mean},
        )
        self._node_norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)
        self._global_norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)

    def __call__(self, graph: gn_graphs.GraphsTuple) -> gn_graphs.GraphsTuple:
        update = self._network(graph)
        return graph.replace(
            nodes=self._node_norm(graph.nodes + update.nodes),
            globals=self._global_norm(graph.globals + update.globals),
        )
