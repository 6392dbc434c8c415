"""Everything that picks rewrites behind one interface: see `controller.interface`. The package brings no TensorFlow."""
