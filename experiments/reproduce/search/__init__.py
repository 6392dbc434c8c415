"""Tables of what rewriting and searches find."""
