"""The stages of learning and optimising, from a model to a verified faster one; `rlflow optimise` runs all of them.

    load         loads the model, the rules, the cost model and the environment
    collect      collects real episodes: of random play, and of a policy for the next round
    world_model  trains the world model of a round and measures its accuracy on held-out episodes
    learning     runs rounds: collects episodes, trains a world model and a policy, compares its dreams with reality
    controller   prepares the controller that the settings name: trains it or searches with it
    trained      prepares the controller of another run for this run's graph (`--from`)
    evaluate     plays real episodes of the controller, and of a random agent
    select       chooses the graph to export, by the clock if costs are measured
    export       exports that graph as an ONNX model and compares it with the original
    measure      measures both models end to end
    optimise     runs all of these in order; `rlflow train` stops after the world model or the controller

The studies for the tables (`experiments.studies`) use the same stages up to `learning`. With recollection, the stages
and checkpoints of later rounds are numbered: `mdn-rnn-1`, `controller-1`. If a run is resumed, the results of finished
stages are read from files, and a long stage continues from its last checkpoint.
"""
