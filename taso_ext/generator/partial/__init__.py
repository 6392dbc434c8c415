"""Partially equal transformations: rules whose target is first equal in most places only, and is then corrected.

`mutants.py` enumerates mutants: other operators that compute nearly the same. `positions.py` says which products a
result sums, `boxes.py` finds the places where a mutant differs, `corrections.py` mends them, `generate.py` runs all
stages. Source: Wang et al. 2021, "PET: Optimizing Tensor Programs with Partially Equivalent Transformations and
Automated Corrections", OSDI.
"""
