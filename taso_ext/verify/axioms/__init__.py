"""Proofs that a rule holds for all shapes, from axioms."""
