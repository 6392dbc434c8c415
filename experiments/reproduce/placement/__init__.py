"""The tables and figures of device placement, beside those of Mirhoseini et al. 2017."""
