"""What other tools make of the same networks."""
