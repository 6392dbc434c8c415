"""Layers that the encoder and the MDN-RNN are built from."""
