"""Controllers that search on the real graph; most of them in the native engine."""
