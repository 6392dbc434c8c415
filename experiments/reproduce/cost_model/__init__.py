"""Tables and figures of cost models."""
