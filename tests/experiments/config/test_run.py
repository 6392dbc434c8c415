"""Settings: every key and type is checked, later sources win, presets are valid."""

from __future__ import annotations

import pytest

from experiments.config.run import RunConfig, load_config, preset_names
from experiments.config.sections import num_cores
from experiments.config.tree import as_mapping, parse_overrides, replaced, takes_integers
from experiments.errors import UserError


def test_the_papers_preset_has_the_papers_sizes() -> None:
    """Five rounds of messages, an LSTM of 256 and 8 Gaussians; the published code had one round."""
    model = load_config("paper", {}).world_model
    assert (model.encoder.kind, model.encoder.rounds, model.encoder.latent) == ("message_passing", 5, 32)
    assert (model.mdn_rnn.dynamics, model.mdn_rnn.hidden, model.mdn_rnn.mixtures) == ("mdn", 256, 8)


def test_the_papers_preset_adds_nothing() -> None:
    """Each of these is a mechanism that the published design does not have."""
    config = load_config("paper", {})
    model, dynamics = config.world_model, config.world_model.mdn_rnn
    assert dynamics.features == "state" and not dynamics.neighbours
    assert not dynamics.hold_changes and not model.encoder.total_time
    assert config.dream.legal_from == 0.5
    assert config.policy.head == "four-networks" and config.policy.torso == (32, 32)
    assert not config.environment.everywhere and config.everywhere_probability is None
    for ppo in (config.ppo, config.ppo_real):
        assert ppo.learning_rate == ppo.last_learning_rate
    assert not config.dream.telescoping
    assert not config.collect.directed and not config.recollect.omitted
    assert not model.mdn_rnn_training.mask_emphasis


def test_a_preset_may_extend_another() -> None:
    paper, cut = load_config("paper", {}), load_config("paper-cut", {})
    assert cut.collect.episodes == paper.collect.episodes // 10
    assert cut.world_model.mdn_rnn == paper.world_model.mdn_rnn


def test_our_presets_carry_rules_out_everywhere_and_the_papers_do_not() -> None:
    found = {name: load_config(name, {}).environment.everywhere for name in preset_names()}
    assert found == {"auto": True, "best": True, "demo": True, "paper": False, "paper-cut": False, "xrlflow": False}
    assert not RunConfig().environment.everywhere, "runs of older versions, which do not say it, had none"


@pytest.mark.parametrize("preset", ["demo", "paper", "paper-cut", "best", "xrlflow"])
def test_presets_load_and_are_listed(preset: str) -> None:
    assert preset in preset_names()
    assert isinstance(load_config(preset, {}), RunConfig)


def test_later_sources_win() -> None:
    assert load_config("best", {"search": {"budget": 7}}).search.budget == 7
    config = load_config("best", {"search": {"budget": 7}}, ["search.budget=9", "dream.temperature=2"])
    assert (config.search.budget, config.dream.temperature) == (9, 2.0)
    assert config.search.alpha == RunConfig().search.alpha


def test_a_config_survives_its_plain_form() -> None:
    config = load_config("demo", {"dims": ["batch=1", "time=8"]}, ["environment.max_locations=12"])
    assert replaced(RunConfig(), as_mapping(config), "config.json") == config


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("search.alhpa=2", "Did you mean 'search.alpha'"),
        ("temperature=2", "Did you mean 'dream.temperature'"),
        ("serch.alpha=2", "Did you mean 'search'"),
        ("search.budget=many", "must be an integer"),
        ("search.budget=1.5", "must be an integer"),
        ("search.budget=true", "must be an integer"),
        ("search.alpha=true", "must be a number"),
        ("world=moon", "must be one of auto, dream, real, mixed"),
        ("search=3", "is a section"),
        ("search.budget", "key=value"),
        ("controller=pppo", "ppo"),
        ("environment.reward=final", "dream.telescoping=false"),
        ("environment.reward=percent:every=5", "dream.telescoping=false"),
        ("environment.reward=math:sqrt", "dream.telescoping=false"),
        ("environment.reward=fianl", "did you mean 'final'"),
        ("environment.reward=combined:alpha=much", "must be a finite number"),
        ("search.alpha=0.5", "section 'search': 'alpha' must be at least 1, but 0.5"),
        ("collect.noop_probability=1.5", "between 0 and 1"),
        ("world_model.encoder_training.optimiser.learning_rte=1", "learning_rate"),
        ("world_model.encoder.rounds=0", "'rounds' must be at least 1, but 0"),
        ("world_model.encoder_training.steps=-5", "'steps' must be at least 0, but -5"),
        ("world_model.encoder_training.calibration=0", "'calibration' must be at least 1"),
        ("world_model.mdn_rnn.mixtures=0", "'mixtures' must be at least 1"),
        ("world_model.mdn_rnn.log_sigma_range=[1.0, -3.0]", "1.0 to -3.0 came"),
        ("world_model.mdn_rnn_training.batch=0", "'batch' must be at least 1"),
        ("world_model.mdn_rnn_training.checkpoint_every=0", "'checkpoint_every' must be at least 1"),
        ("world_model.mdn_rnn_training.optimiser.learning_rate=-1.0", "'learning_rate' must be at least 0"),
        ("dream.temperature=nan", "'temperature' must be at least 0, but nan"),
        ("dream.temperature=inf", "'temperature' must be at least 0 and finite, but inf"),
        ("world_model.mdn_rnn.log_sigma_range=[-inf, 1.0]", "-inf to 1.0 came"),
        ("policy.head=pointer", "a dream has no nodes; set --world real too, or policy.head=hierarchical"),
        ("policy.head=tree", "hierarchical"),
        ("dream.pessimism=1", "world_model.mdn_rnn.ensemble=3 too"),
        ("dims=['batch']", "name=value"),
        ("dims=['batch=0']", "positive"),
    ],
)
def test_bad_settings_are_explained(assignment: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as raised:
        load_config("best", {}, [assignment])
    assert "\n" not in str(raised.value)


def test_a_dream_has_no_nodes_for_a_pointer_of_mcts_either() -> None:
    with pytest.raises(ValueError, match="a dream has no nodes"):
        load_config("best", {"controller": "mcts", "world": "dream"}, ["policy.head=pointer"])
    load_config("best", {"controller": "mcts"}, ["policy.head=pointer"])


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean 'paper'"):
        load_config("papper", {})


def test_overrides_are_toml_values_or_plain_texts() -> None:
    assert parse_overrides(["a.b=1", "a.c=text", 'd="3"', "e=[1, 2]"]) == {
        "a": {"b": 1, "c": "text"},
        "d": "3",
        "e": [1, 2],
    }


@pytest.mark.parametrize("path", ["seed", "ppo.updates", "world_model.encoder.rounds"])
def test_settings_that_take_integers_alone_are_known(path: str) -> None:
    assert takes_integers(RunConfig(), path)


@pytest.mark.parametrize("path", ["ppo.learning_rate", "controller", "portable", "ppo", "ppo.updtes", "seed.x", "ppo."])
def test_other_settings_take_no_integers_or_other_numbers_too(path: str) -> None:
    assert not takes_integers(RunConfig(), path)


def test_a_value_has_no_settings() -> None:
    with pytest.raises(UserError, match=r"--set a\.b=2: 'a' was already set to the value 1"):
        parse_overrides(["a=1", "a.b=2"])


@pytest.mark.parametrize("reward", ["log_ratio", "incremental", "combined:alpha=0.5,beta=0.5", "percent:every=1"])
def test_rewards_that_telescope_need_no_more(reward: str) -> None:
    assert load_config("best", {}, [f"environment.reward={reward}"]).environment.reward == reward


@pytest.mark.parametrize("reward", ["final", "new_runtime", "percent:every=10,bonus=0.2", "math:sqrt"])
def test_other_rewards_are_taken_with_ppo_told(reward: str) -> None:
    assignments = [f"environment.reward={reward}", "dream.telescoping=false", "recollect.searched=0"]
    assert load_config("best", {}, assignments).environment.reward == reward
    with pytest.raises(UserError, match=r"set dream\.telescoping=false and recollect\.searched=0 too"):
        load_config("best", {}, [*assignments[:1], "recollect.searched=0.2"])
    with pytest.raises(UserError, match=r"set dream\.telescoping=false too"):
        load_config("best", {}, assignments[:1])


def test_none_clears_an_optional_value_only() -> None:
    assert load_config("best", {}, ["environment.max_locations=none"]).environment.max_locations is None
    with pytest.raises(UserError, match="must be an integer"):
        load_config("best", {}, ["collect.episodes=none"])


def test_threads_are_a_number_or_all() -> None:
    every = load_config("best", {}, ["measure.threads=all"]).measure
    assert every.threads == "all" and every.num_threads == num_cores() >= 1
    assert load_config("best", {}, ["measure.threads=3"]).measure.num_threads == 3
    with pytest.raises(UserError, match=r"'measure.threads' in --set must be an integer or all, but 'some' came"):
        load_config("best", {}, ["measure.threads=some"])
