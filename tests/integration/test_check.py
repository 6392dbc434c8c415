"""`rlflow check` says whether two models compute the same and which one is faster, wherever they come from."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from environment import zoo
from experiments.cli import main
from experiments.runs.provenance import PREFIX, Provenance, provenance_of, stamped
from taso_ext.onnx_io.reading import read_model

MODEL = "bert-base-tiny"
QUICK = ("--set", "measure.pairs=2", "--set", "measure.sessions=1", "--set", "measure.control=false")
RANDOM = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 4] x) => (float[4, 4] y) { h = RandomNormalLike(x) y = Add(h, x) }
"""


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def checked(capsys: pytest.CaptureFixture[str], *arguments: str, status: int) -> str:
    """Returns what a check says that ends with `status`."""
    assert main(["check", *arguments, *QUICK]) == status
    return capsys.readouterr().out


def test_a_result_is_equal_and_says_where_it_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "optimise",
                MODEL,
                "-o",
                "out.onnx",
                "--controller",
                "greedy",
                "--costs",
                "roofline:rtx2070",
                "--json",
                *QUICK,
            ]
        )
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["output"] == "out.onnx" and result["bytes_before"] > 0 and result["measured"]["ratio"] > 0
    said = checked(capsys, MODEL, "out.onnx", status=0)
    assert said.startswith("Equal: on ") and "ratio" in said and "Size: " in said and "Warning" not in said
    found = json.loads(checked(capsys, MODEL, "out.onnx", "--json", status=0))
    assert found["verification"]["equal"] and found["measured"]["ratio"] > 0
    assert found["provenance"]["costs"] == "roofline:rtx2070" and found["provenance"]["measured_on"] == found["here"]


def test_a_changed_weight_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    model = zoo.build(MODEL)
    tensor = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[:] *= 1.5
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(model, "other.onnx")
    said = checked(capsys, MODEL, "other.onnx", status=1)
    assert said.startswith("DIFFERENT: ") and "ratio" not in said
    assert not json.loads(checked(capsys, MODEL, "other.onnx", "--json", status=1))["verification"]["equal"]


def test_what_cannot_be_compared_is_not_verified(capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx.parser.parse_model(RANDOM), "random.onnx")
    assert checked(capsys, "random.onnx", "random.onnx", status=3).startswith("Not verified: ")


def test_models_of_other_outputs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", MODEL, "squeezenet1.1-tiny"]) == 2
    assert "'pooler_output' and 'output'" in capsys.readouterr().err


def test_symbolic_dimensions_are_bound_where_they_are_open(capsys: pytest.CaptureFixture[str]) -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[{n}, 4] x) => (float[{n}, 4] y) {{ y = Relu(x) }}'
    onnx.save(onnx.parser.parse_model(text.format(n="n")), "open.onnx")
    onnx.save(onnx.parser.parse_model(text.format(n=3)), "bound.onnx")
    assert checked(capsys, "open.onnx", "bound.onnx", "--dim", "n=3", status=0).startswith("Equal")


def test_a_result_of_another_device_comes_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    model = read_model(zoo.build(MODEL))
    first = stamped(model, Provenance("1.0", "measured:cpu", "cpu (a slide rule)"))
    again = stamped(first, Provenance("1.1", "measured:cpu", "cpu (an abacus)"))
    assert provenance_of(model) is None
    assert provenance_of(again) == Provenance("1.1", "measured:cpu", "cpu (an abacus)")
    assert sum(entry.key.startswith(PREFIX) for entry in again.skeleton.metadata_props) == 3
    onnx.save(again.to_proto(), "out.onnx")
    said = checked(capsys, MODEL, "out.onnx", status=0)
    assert "Warning: out.onnx was made for cpu (an abacus)" in said
