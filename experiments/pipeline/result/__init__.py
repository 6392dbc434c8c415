"""The stages that write: the best graph as a model that is compared with the original, for all sizes."""
