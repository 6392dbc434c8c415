"""Baselines: TensorFlow, which the papers compare with, and other tools that run or rewrite models.

    tools                   all tools that run a model in comparisons, and onnxsim, which rewrites it first
    tensorflow.runtime      TensorFlow as a runtime, with Grappler or XLA, and a model as a concrete function
    tensorflow.values       values in the axis order that suits TensorFlow, and a node with its attributes
    tensorflow.arithmetic, .rearrangements, .windows          the operators

For TensorFlow, ONNX models are converted operator by operator; the operators of the zoo are supported. All modules of
`tensorflow` import TensorFlow, so other modules import them only when they are needed.
"""
