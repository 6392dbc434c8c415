"""The import clean-up: what any runtime does at load, done before the engine sees the model."""
