"""The stages of learning and optimising, from a model to a verified faster one; `rlflow optimise` goes through all.

    load         the model, the rules, the cost model and the environment
    collect      real episodes: of random play, and of a policy for the next round
    world_model  the world model of a round, and its accuracy on held-out episodes
    learning     rounds of collecting, training a world model and a policy, and comparing its dreams with reality
    controller   the controller that the settings name, trained or searched with
    trained      the controller of another run, bound to this run's graph (`--from`)
    evaluate     real episodes of the controller, and of random play beside it
    select       the graph to export, by the clock where costs are measured
    export       that graph as an ONNX model, compared with the original
    measure      both models end to end
    optimise     all of them in order; `rlflow train` stops after the world model or the controller

The tables' studies (`experiments.studies`) use the same stages up to `learning`. With recollection, the stages and
checkpoints of later rounds are numbered: `mdn-rnn-1`, `controller-1`. A finished stage is only read again when a run is
resumed, and one that takes long resumes inside.
"""
