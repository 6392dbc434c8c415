"""What results are compared with: TensorFlow, the baseline of the papers, and other tools that run or rewrite models.

    tools                   all tools that run a model in comparisons; onnxsim, which rewrites it first
    tensorflow.runtime      TensorFlow as a runtime, with Grappler or XLA, and a model as a concrete function
    tensorflow.values       values in the axis order that suits TensorFlow, one operator and its attributes
    tensorflow.arithmetic, .rearrangements, .windows          the operators

For TensorFlow, ONNX models are converted operator by operator, for the operators of the zoo. All of `tensorflow`
imports TensorFlow, so nothing else imports it before it is asked for.
"""
