"""Proofs from axioms that a rule holds for all shapes."""
