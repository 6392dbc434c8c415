"""Transfers the weights of a policy over one graph's actions to a policy over another graph's actions.

A policy has weights for every rule, site and action of its table. The weights for another table are made from them:

    a rule    takes the weights of the same rule; a rule that the other graph does not have starts as an untrained one
    a site    takes the mean of the sites at which the most similar set of rules was ever legal (Jaccard index);
              the site of everywhere-actions takes that of everywhere-actions
    an action takes the mean of the same rule's actions at these sites, or else of all actions of that rule

All other weights do not depend on the graph and are copied. Nothing is trained.

This is for the head `hierarchical`. The head `pointer` needs no transfer, because all its weights fit every graph. The
networks of `four-networks` say nothing of what an output stands for but its number, and cannot be transferred.
"""

from __future__ import annotations

import numpy as np

from controller.interface import StoredControllerError
from controller.policies.hierarchical_head import HierarchicalHead
from controller.policies.latent import LatentPolicy
from worldmodel.data.actions import ActionTable


def warm_start(source: LatentPolicy, source_table: ActionTable, target: LatentPolicy, table: ActionTable) -> None:
    """Replaces the weights of `target`, a policy over `table`, by those that `source` has learned.

    Args:
      source, source_table: the trained policy and the table of its actions; neither is changed.
      target, table: a policy of the same sizes and rule set, and the table of its actions on another graph.
    Raises:
      StoredControllerError: the policies have another head than `hierarchical`.
    """
    old, new = source.head, target.head
    if not (isinstance(old, HierarchicalHead) and isinstance(new, HierarchicalHead)):
        raise StoredControllerError(
            "A policy with the head 'four-networks' plays only on the graph that it was trained on, because its "
            "outputs are numbers of that graph's rules and sites. Train it on this graph, or train one with "
            "policy.head=hierarchical, or in the real environment with policy.head=pointer, for other graphs."
        )
    rules = _same_rules(source_table, table)
    sites = _similar_sites(source_table, table)
    _assign(old, new, rules, sites, _matching_actions(source_table, table, sites))


def _same_rules(source: ActionTable, table: ActionTable) -> np.ndarray:
    """Returns float32 [rules of `table`, rules of `source`]: 1 for equal rules; NO-OP is the last of both."""
    equal = np.unique(table.rules)[:, np.newaxis] == np.unique(source.rules)
    return equal.astype(np.float32)


def _similar_sites(source: ActionTable, table: ActionTable) -> np.ndarray:
    """Returns float32 [sites of `table`, sites of `source`]: the shares in the mean; rows sum to 1."""
    here, there = _rules_at_sites(table), _rules_at_sites(source)
    common = here @ there.T
    union = here.sum(axis=1)[:, np.newaxis] + there.sum(axis=1) - common
    similarity = common / np.maximum(union, 1)
    # The site of everywhere-actions is like no other, however many rules it has in common with one.
    alike = _has_everywhere(table)[:, np.newaxis] == _has_everywhere(source)
    similarity = np.where(alike | ~alike.any(axis=1, keepdims=True), similarity, -1.0)
    nearest = (similarity == similarity.max(axis=1, keepdims=True)).astype(np.float32)
    return nearest / nearest.sum(axis=1, keepdims=True)


def _has_everywhere(table: ActionTable) -> np.ndarray:
    """Returns which sites are those of everywhere-actions: bool [sites]."""
    found = np.zeros(table.num_sites, bool)
    found[table.sites[table.is_everywhere]] = True
    return found


def _rules_at_sites(table: ActionTable) -> np.ndarray:
    """Returns float32 [sites, R + 1]: 1 if a rule was ever legal at a site, else 0."""
    found = np.zeros((table.num_sites, table.num_rules + 1), np.float32)
    found[table.sites, table.rules] = 1
    return found


def _matching_actions(source: ActionTable, table: ActionTable, sites: np.ndarray) -> np.ndarray:
    """Returns float32 [actions of `table`, actions of `source`]: the shares in the mean; 0 for new rules."""
    same_rule = (table.rules[:, np.newaxis] == source.rules).astype(np.float32)
    there = same_rule * (sites[table.sites][:, source.sites] > 0)
    shares = np.where(there.sum(axis=1, keepdims=True) > 0, there, same_rule)
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1)


def _assign(
    source: HierarchicalHead, target: HierarchicalHead, rules: np.ndarray, sites: np.ndarray, actions: np.ndarray
) -> None:
    """Copies the weights that do not depend on the table; those of rules, sites and actions become means."""
    old, new = source.table_weights, target.table_weights
    of_table = {id(variable) for variable in (*new.inputs, *new[1:])}
    for trained, variable in zip(source.variables, target.variables, strict=True):
        if id(variable) not in of_table:
            variable.assign(trained)
    for trained, variable in zip(old.inputs, new.inputs, strict=True):
        variable.assign(_first_layer(trained.numpy(), rules, mask_width=new.summands.shape[1]))
    known = rules.sum(axis=1, keepdims=True) > 0
    new.rules.assign(old.rules.numpy() @ rules.T)
    new.rule_bias.assign(rules @ old.rule_bias.numpy())
    new.gates.assign(np.where(known, rules @ old.gates.numpy(), 1.0))
    new.sites.assign(sites @ old.sites.numpy())
    new.biases.assign(actions @ old.biases.numpy())
    new.summands.assign(actions @ old.summands.numpy())


def _first_layer(trained: np.ndarray, rules: np.ndarray, *, mask_width: int) -> np.ndarray:
    """Returns a first layer [inputs, units] for other rules; see `TableWeights.inputs`."""
    features = len(trained) - rules.shape[1] - mask_width
    of_features, of_counts, of_mask = np.split(trained, [features, features + rules.shape[1]])
    return np.concatenate([of_features, rules @ of_counts, of_mask])
