"""A generator of rewrite rules, which enumerates tensor expressions and compares what they compute."""
