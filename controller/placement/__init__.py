"""Controllers that place groups of operators on devices: baselines, searches and learned ones, by one interface."""
