"""`rlflow place`: divides a model among devices that are here, or places it on a machine that is simulated."""
