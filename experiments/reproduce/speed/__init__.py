"""How long steps and dreams take."""
