"""Tables and figures of world models."""
