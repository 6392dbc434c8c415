"""Attacks the program and prints counts: `python -m tests.attack models|faults|rules [--count N] [--first SEED]`.

models: optimises N random nasty models (models.py) by each of three controllers, and judges the results.
faults: does N runs, in the middle of which something goes wrong: a kill, a full disk, a damaged file … (faults.py).
rules: asks the verifier about N wrong rules that are made from operator schemas (rules.py).

The exit status is 1 if there is a fault, for example an unequal result, a traceback, or no result where there is one to
give. Every fault is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import Counter
from multiprocessing import get_context

DEFAULT_COUNTS = {"models": 2000, "faults": 200, "rules": 2000}
MODULES = {"models": "on_models", "faults": "faults", "rules": "rules"}


def main() -> int:
    """Runs one kind of attack and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*DEFAULT_COUNTS])
    parser.add_argument("--count", type=int, help="number of models, faults or rules")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--verbose", action="store_true", help="also print what was refused or not verified")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    attack = importlib.import_module(f"tests.attack.{MODULES[options.kind]}")
    total = options.count or DEFAULT_COUNTS[options.kind]
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    seeds = range(options.first, options.first + total)
    with get_context("spawn").Pool(options.processes, maxtasksperchild=50) as pool:
        for done, findings in enumerate(pool.imap_unordered(attack.attack, seeds), start=1):
            for each in findings:
                counts[each.outcome] += 1
                if each.outcome in attack.FAULTS or (options.verbose and each.outcome not in attack.GOOD):
                    again = f"python -m tests.attack {options.kind} --first {each.seed} --count 1"
                    print(f"{each.outcome} by {each.how}: {again}\n{each.details}\n", flush=True)
            if done % 50 == 0:
                print(f"{done}/{total} {options.kind}: {dict(counts)}", file=sys.stderr, flush=True)
    print(f"{options.kind} from {options.first} on: {total} in {time.monotonic() - begin:.0f} s")
    for outcome, count in counts.most_common():
        print(f"{count:6d}  {outcome}")
    for outcome in attack.FAULTS:
        if not counts[outcome]:
            print(f"{0:6d}  {outcome}")
    return int(any(counts[fault] for fault in attack.FAULTS))


if __name__ == "__main__":
    sys.exit(main())
