"""The import clean-up: simplifications that any runtime makes at load, made before the engine sees the model."""
