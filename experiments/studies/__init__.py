"""How trained world models are judged for the tables: units of work of one (setting, seed), and what is asked of them.

    setting   what a model is trained on, and how much of it is judged
    rounds    trains world models and policies, round after round
    judge     what one model predicts of held-out episodes
    transfer  what it predicts of a graph that it was not trained on
    policy    what a policy makes of it
    study     all of that as units of work, of one setting and seed
    asked     which figures are good enough

Nothing here imports TensorFlow before it is needed.
"""
