from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldmodel.data.actions import MAX_LOCATIONS, MAX_RULES, ActionTable, pack, unpack

pairs_of_actions = hnp.arrays(
    np.int32, st.tuples(st.integers(0, 40), st.just(2)), elements=st.integers(0, MAX_RULES - 1)
)


@given(pairs_of_actions)
def test_packing_keeps_pairs_and_their_order(pairs: np.ndarray) -> None:
    np.testing.assert_array_equal(unpack(pack(pairs)), pairs)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    np.testing.assert_array_equal(np.sort(pack(pairs)), pack(pairs)[order])


@pytest.mark.parametrize("pair", [(-1, 0), (0, -1), (MAX_RULES, 0), (0, MAX_LOCATIONS)])
def test_what_does_not_fit_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=str(list(pair))[1:-1]):
        pack(np.array([(0, 0), pair]))


@given(pairs_of_actions, pairs_of_actions)
def test_encoding_finds_exactly_the_actions_of_the_table(known: np.ndarray, others: np.ndarray) -> None:
    table = ActionTable.of_codes(pack(known), MAX_RULES)
    indices = table.encode(others)
    inside = np.isin(pack(others), pack(known))
    np.testing.assert_array_equal(indices >= 0, inside)
    np.testing.assert_array_equal(table.decode(indices[inside]), others[inside])


@given(pairs_of_actions)
def test_all_indices_round_trip_and_noop_is_the_last(known: np.ndarray) -> None:
    table = ActionTable.of_codes(pack(known), MAX_RULES)
    everything = np.arange(table.num_actions + 1)
    np.testing.assert_array_equal(table.encode(table.decode(everything)), everything)
    np.testing.assert_array_equal(table.encode([[MAX_RULES, 17]]), [table.num_actions])
    assert len(set(table.locations[:-1].tolist())) == table.num_sites - 1


@given(pairs_of_actions, pairs_of_actions)
def test_a_mask_holds_the_known_legal_actions_and_noop(known: np.ndarray, legal: np.ndarray) -> None:
    table = ActionTable.of_codes(pack(known), MAX_RULES)
    mask = table.mask(legal)
    assert mask[-1]
    np.testing.assert_array_equal(mask[:-1], np.isin(table.codes, pack(legal)))


def test_stored_tables_are_equal() -> None:
    table = ActionTable.of_codes(pack(np.array([[2, 5], [0, 3], [2, 5]])), 4)
    again = ActionTable.from_arrays(table.to_arrays())
    np.testing.assert_array_equal(again.codes, table.codes)
    assert again.num_rules == 4


def test_decoding_refuses_what_is_no_action() -> None:
    table = ActionTable.of_codes(pack(np.array([[0, 0]])), 1)
    with pytest.raises(ValueError, match="NO-OP"):
        table.decode(np.array([2]))


def test_a_table_refuses_rules_it_has_no_number_for() -> None:
    with pytest.raises(ValueError, match="rule 3"):
        ActionTable.of_codes(pack(np.array([[3, 0]])), 3)
