"""Model predictive control: planning in the world model at every step."""
