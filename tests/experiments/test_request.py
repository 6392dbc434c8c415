from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cli import build_parser
from experiments.config.flags import DISCRETE
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.request import Request, one_by_one, parse_request


def requested(tmp_path: Path, *more: str) -> Request:
    command = ["optimise", "squeezenet1.1-tiny", "-o", str(tmp_path / "out.onnx"), *more]
    (options,) = one_by_one(build_parser().parse_args(command))
    return parse_request(options)


def configured(tmp_path: Path, *more: str) -> RunConfig:
    return requested(tmp_path, *more).config


def test_options_of_the_world_model_arrive(tmp_path: Path) -> None:
    config = configured(tmp_path, "--reward-head", "separate", "--ensemble", "3").world_model
    assert (config.mdn_rnn.reward_head, config.mdn_rnn.ensemble, config.mdn_rnn.dynamics) == ("separate", 3, "mdn")
    assert config.encoder.categories == 0


def test_discrete_dynamics_bring_an_encoder_with_categories(tmp_path: Path) -> None:
    config = configured(tmp_path, "--dynamics", "discrete").world_model
    assert config.mdn_rnn.dynamics == "discrete" and config.encoder.categories == DISCRETE["categories"]
    config = configured(tmp_path, "--dynamics", "discrete", "--set", "world_model.encoder.categories=8").world_model
    assert config.encoder.categories == 8


def test_rounds_of_recollection_arrive(tmp_path: Path) -> None:
    config = configured(tmp_path, "--recollect", "2", "--set", "recollect.episodes=7")
    assert (config.recollect.rounds, config.recollect.episodes) == (2, 7)
    assert configured(tmp_path, "--controller", "taso", "--recollect", "0").recollect.rounds == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dynamics", "continuous"], "one of mdn, discrete, deterministic"),
        (["--ensemble", "0"], "0 members predicts nothing"),
        (["--recollect", "-1"], "'rounds' must be between 0 and 99"),
        (["--recollect", "1", "--controller", "taso"], "--controller taso is not"),
        (["--recollect", "1", "--world", "real"], "--controller ppo --world real is not"),
        (["--set", "world_model.encoder.categories=4"], "do not go together"),
        (["--controller", "ppo", "--budget", "3"], "--budget 3 is for beam, .* is 'ppo', which does not read it"),
        (["--controller", "greedy", "--time", "5"], "--time 5.0 is for beam, .* is 'greedy'"),
        (["--controller", "taso", "--width", "3"], "--width 3 is for beam, but the controller is 'taso'"),
        (["--controller", "saturation", "--budget", "3", "--set", "saturation.then=none"], "is 'saturation'"),
    ],
)
def test_what_does_not_go_together_is_said(options: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        configured(tmp_path, *options)


@pytest.mark.parametrize(
    "options",
    [
        ["--time", "9", "--budget", "5"],
        ["--controller", "restarts", "--walk", "3", "--threads", "2", "--memory", "64"],
        ["--controller", "saturation", "--time", "9", "--budget", "5", "--set", "saturation.then=taso"],
        ["--controller", "greedy", "--set", "search.budget=5"],
    ],
)
def test_flags_of_searches_are_for_controllers_that_read_them(options: list[str], tmp_path: Path) -> None:
    assert configured(tmp_path, *options).search


def test_settings_that_a_run_does_not_read_are_known(tmp_path: Path) -> None:
    """One list of settings may serve several controllers, so that they are named and not refused."""
    settings = ["--set", "search.budget=5", "--set", "ppo.epochs=3", "--set", "evaluate.sampled_episodes=2"]
    assert requested(tmp_path, "--controller", "greedy", *settings).unread == ("search.budget", "ppo.epochs")
    assert requested(tmp_path, "--controller", "ppo", *settings).unread == ("search.budget",)
    assert requested(tmp_path, "--controller", "taso", *settings).unread == ("ppo.epochs",)


@pytest.mark.parametrize(
    ("options", "controller", "costs"),
    [
        ([], "climb", "measured:cpu"),
        (["--time", "9", "--costs", "endtoend:cpu"], "climb", "endtoend:cpu"),
        (["--costs", "roofline:v100"], "ppo", "roofline:v100"),
        (["--world", "real"], "ppo", "measured:cpu"),
        (["--set", "ppo.updates=3"], "ppo", "measured:cpu"),
        (["--preset", "demo"], "ppo", "measured:cpu"),
        (["--preset", "paper"], "ppo", "roofline:rtx2070"),
        (["--preset", "xrlflow"], "xrlflow", "endtoend:cpu"),
        (["--costs", "measured:auto:noise=resampled", "--device", "cpu"], "climb", "measured:cpu:noise=resampled"),
        (["--controller", "taso"], "taso", "measured:cpu"),
        (["--controller", "auto"], "climb", "measured:cpu"),
        (["--controller", "auto", "--costs", "roofline:v100"], "ppo", "roofline:v100"),
        (["--preset", "best", "--controller", "auto"], "climb", "measured:cpu"),
    ],
)
def test_a_command_that_says_little_goes_by_the_clock(
    options: list[str], controller: str, costs: str, tmp_path: Path
) -> None:
    config = configured(tmp_path, *options)
    assert (config.controller, config.costs, config.device) == (controller, costs, "cpu")
