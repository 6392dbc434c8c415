"""Studies of world models and policies for the tables: units of work of one (setting, seed), and what they must reach.

    setting       what a model is trained on, and how much of it is evaluated
    study         units of work of one setting and seed, on top of the stages of `experiments.pipeline`
    evaluation    what a world model predicts of held-out episodes, of its own graph or of another
    policy        how a policy exploits the mistakes of its dream
    mechanisms    what single mechanisms of the world model or of play contribute
    requirements  what figures must reach

Nothing here imports TensorFlow before it is needed.
"""
