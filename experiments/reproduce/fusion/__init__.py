"""Tables about fusion by local advantage functions: queries to equal results, curves, and ablations."""
