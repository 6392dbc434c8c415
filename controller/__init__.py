"""Everything that picks rewrites behind one interface: see `controller.base`. The package brings no TensorFlow."""
