"""The stages that write: the best graph as a model that is proved equal, for all sizes, and inside operators too."""
