"""The stages of `rlflow optimise`, one file each, in the order in which they run:

    load  collect  world_model  accuracy  controller  exploit  evaluate  select  export  measure

With recollection, rounds of

    recollect  world_model  accuracy  controller  exploit

come before the evaluation, each of whose stages and artefacts is numbered: `mdn-rnn-1`, `controller-1`.

A stage leaves an artefact in the run directory's `checkpoints/`; a finished stage is only read again when a run is
resumed, and one that takes long resumes inside.
"""
