"""Models older or newer than what the engine and the clean-up work on."""
