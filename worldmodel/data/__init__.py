"""Episodes, and what training and accuracy make of them."""
