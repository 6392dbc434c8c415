"""How trained world models are judged for the tables: units of work of one (setting, seed), and what is asked of them.

    rounds  trains world models and policies, round after round
    judge   what one model predicts of held-out episodes
    policy  what a policy makes of it
    asked   which figures are good enough

Nothing here imports TensorFlow before it is needed.
"""
