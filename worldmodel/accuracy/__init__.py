"""How well a world model predicts, and what policies make of its mistakes."""
