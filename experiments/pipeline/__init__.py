"""The stages of learning and optimising, from a model to a verified faster one; `rlflow optimise` runs all of them.

    loading      what a run begins with
        load         loads the model, the rules, the cost model and the environment
        cases        a model at several sizes of its symbolic dimensions
        replay       makes the rewrites of a log again
        waypoints    the graphs that a log goes to by name
    result       the stages that write
        export       exports the chosen graph as an ONNX model and compares it with the original
        symbolic     keeps the symbolic dimensions of the model
    clock        the stages that time
        timings      times a few graphs of a run whose costs are corrected by whole graphs
        retime       times the kernels again on which a gain rests
        measure      measures both models end to end
    learning     the stages that learn
        collect      collects real episodes: of random play, and of a policy for the next round
        world_model  trains the world model of a round and measures its accuracy on held-out episodes
        rounds       repeats rounds: episodes, a world model and a policy, whose dreams are compared with reality
        controller   prepares the controller that the settings name: trains it or searches with it
        trained      prepares the controller of another run for this run's graph (`--from`)
        evaluate     plays real episodes of the controller, and of a random agent
    select       chooses the graph to export, by the clock if costs are measured
    bodies       rewrites the graphs inside operators
    optimise     runs all of these in order; `rlflow train` stops after the world model or the controller

A room imports only from rooms above it in this list, and the files below all rooms from any. `check`, `explain` and
`fuse` are the commands of these names; `stored` reads what a run has left. The studies for the tables
(`experiments.studies`) use the same stages up to `rounds`. With recollection, the stages and checkpoints of later
rounds are numbered: `mdn-rnn-1`, `controller-1`. If a run is resumed, the results of finished stages are read from
files, and a long stage continues from its last checkpoint.
"""
