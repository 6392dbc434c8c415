"""What results are compared with: TensorFlow, the baseline of the papers, and other tools that run or rewrite models.

    contestants             all that a model is run by when tools are compared
    simplifier              onnxsim
    tensorflow_runtime      TensorFlow as a runtime, with Grappler or XLA
    onnx_to_tensorflow      a model as a concrete function
    laid_out                values in the axis order that suits TensorFlow
    node                    one operator, its attributes, and what to say of what is not supported
    elementwise, products, rearrangements, windows          the operators

For TensorFlow, ONNX models are converted operator by operator, for the operators of the zoo. All modules from
`tensorflow_runtime` on import TensorFlow, so nothing else imports them before they are asked for.
"""
