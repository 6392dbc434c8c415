"""Episodes, and the form in which training and accuracy use them."""
