"""X-RLflow: a policy that looks at every graph that one rewrite leads to (He et al. 2023)."""
