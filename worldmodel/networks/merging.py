"""One embedding for all nodes of a batch that see the same, in whichever graphs they stand.

Networks in which nodes know nothing but what they read over a few edges give such nodes the same values. Their
Weisfeiler-Leman colours say which these are (`taso_ext.node_colours`): in a batch of states of one network, one node of
ten or twenty differs from all others.
"""

from __future__ import annotations

import tensorflow as tf
from graph_nets import graphs as gn_graphs


def merged(graph: gn_graphs.GraphsTuple, colours: tf.Tensor) -> tuple[gn_graphs.GraphsTuple, tf.Tensor]:
    """Merges the nodes of each colour.

    Args:
      graph: G graphs, of N nodes in all.
      colours: int64 [N], equal where nodes see the same over as many edges as there are rounds.
    Returns:
      One graph without globals, which has the first node of each colour, in their order, and the edges to these nodes,
      in their order; and the node there that stands for each of the N: int32 [N].
    """
    distinct, stands = tf.unique(colours)
    numbers = tf.range(tf.size(stands))
    first = tf.math.unsorted_segment_min(numbers, stands, tf.size(distinct))
    kept = tf.gather(tf.gather(first, stands) == numbers, graph.receivers)
    senders, receivers = (tf.gather(stands, tf.boolean_mask(ends, kept)) for ends in (graph.senders, graph.receivers))
    one = gn_graphs.GraphsTuple(
        nodes=tf.gather(graph.nodes, first),
        edges=tf.boolean_mask(graph.edges, kept),
        senders=senders,
        receivers=receivers,
        globals=None,
        n_node=tf.size(distinct)[tf.newaxis],
        n_edge=tf.size(senders)[tf.newaxis],
    )
    return one, stands
