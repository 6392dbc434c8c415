"""Controllers that search on the real graph; the native engine carries out most of them."""
