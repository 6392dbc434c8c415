"""The stages of `rlflow optimise`, one file each, in the order in which they run:

    load  collect  world_model  controller  evaluate  export  measure

A stage leaves an artefact in the run directory's `checkpoints/`; a finished stage is only read again when a run is
resumed, and one that takes long resumes inside.
"""
