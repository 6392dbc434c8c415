"""The world model: episodes, graph encoder, MDN-RNN, the dream environment and what its accuracy is measured by.

Importing the package itself brings no TensorFlow; the modules with networks do.
"""
