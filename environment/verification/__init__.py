"""Whether two models compute the same, shown by running them."""
