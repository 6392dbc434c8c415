"""What results are compared with: TensorFlow, the baseline of the papers.

ONNX models are converted operator by operator, for the operators of the zoo. Its modules import TensorFlow, so nothing
else imports them before they are asked for.

    tensorflow_runtime      TensorFlow as a runtime, with Grappler or XLA
    onnx_to_tensorflow      a model as a concrete function
    laid_out                values in the axis order that suits TensorFlow
    node                    one operator, its attributes, and what to say of what is not supported
    elementwise, products, rearrangements, windows          the operators
"""
