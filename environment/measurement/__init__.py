"""How long models take and how much memory they need."""
