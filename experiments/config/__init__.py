"""Every setting of a run, and the presets."""
