"""How long an end-to-end reward takes: `python -m tests.perf.end_to_end_reward [GRAPH ...] [--out FILE]`.

The ratio of a graph to itself at 1 % resolution, from two models in memory to the interval: sessions are made, warmed
up and run. Prints a table and asserts nothing: a clock is no test. On a busy machine the CPU time is the better figure,
and also that is higher than on an idle one: samples that were interrupted are taken again, and caches are shared.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import onnxruntime

from environment import zoo
from environment.effort import Effort
from environment.runtimes import OnnxRuntime
from environment.timing import Variant, measure
from taso_ext.detached import DetachedModel, detach

LIMITS_S = {"squeezenet1.1": 3.0, "bert-base": 20.0}
"""Within which it should be done on an idle machine."""
HEADER = [
    "| graph | control | wall [s] | CPU [s] | within [s] | one inference [ms] | pairs | sessions | ± % | ratio |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
]


def row(name: str, model: DetachedModel, effort: Effort) -> str:
    """One measurement."""
    runtime = OnnxRuntime()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    found = measure(Variant("start", runtime, model), [Variant("state", runtime, model)], effort)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    limit = f"{LIMITS_S[name]:g}" if name in LIMITS_S else ""
    cells = [name, "yes" if effort.control else "no", f"{wall_s:.2f}", f"{cpu_s:.2f}", limit]
    cells += [f"{found.reference.ms.value:.2f}", str(found.pairs), str(found.sessions)]
    cells += [f"{100 * found.precision:.2f}", str(found.ratio)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=list(LIMITS_S), help="zoo graphs (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--resolution", type=float, default=0.01, help="half of the interval (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="rows of each graph (default: %(default)s)")
    options = parser.parse_args()
    lines = [
        "# What an end-to-end reward takes",
        "",
        f"`python -m tests.perf.end_to_end_reward {' '.join(sys.argv[1:])}`",
        "",
        f"ONNX Runtime {onnxruntime.__version__}, one thread. The control is the start against itself.",
        "",
        *HEADER,
    ]
    print("\n".join(lines), flush=True)
    for name in options.graphs:
        model = detach(zoo.build(name))
        for seed in range(options.repeats):
            for control in (False, True):
                lines.append(row(name, model, Effort(resolution=options.resolution, control=control, seed=seed)))
                print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
