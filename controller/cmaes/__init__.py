"""A linear controller that evolves in the dream, by CMA-ES."""
