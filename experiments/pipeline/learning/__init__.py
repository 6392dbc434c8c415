"""The stages that learn: collect, train world models and controllers in rounds, and play what was trained."""
