"""An algorithm of other people: sb3-contrib's MaskablePPO on the list of candidates."""
