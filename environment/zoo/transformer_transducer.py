"""The transformer transducer (T-T), a speech recogniser, in inference mode: all three of its parts in one graph.

An audio encoder reads the sound, a label encoder reads the text so far, and a joint network gives, for every frame and
every beginning of the text, the logarithm of the probability of each next label. This is the whole network of a
training step; a recogniser computes the same along one path only.

Source of the layers: Zhang et al. 2020, "Transformer Transducer", section 2. Blocks of both encoders are alike: the
attention and the feed-forward part (ReLU) each read the normalised residual stream, and are added to *that*, not to the
stream before the norm; no norm follows the last block. Attention is over relative positions (Dai et al. 2019,
"Transformer-XL", section 3.3), over the whole sound in the audio encoder and over the labels so far in the label
encoder. Names and details that the paper does not give are those of ESPnet's relative attention: biases in the linear
layers except that of the positions, and both position biases in every block.

Source of the sizes: the graph that X-RLflow calls T-T (He et al. 2023): 80 frames, width 512, 12 and 2 blocks, 8 heads,
feed-forward 2048 (the paper: 18 and 2 blocks), and a joint network from both encoders' 1024 values side
by side to 512, tanh, and to the classes, as in the implementation that graph comes from
(github.com/upskyy/Transformer-Transducer). The paper adds a linear layer of each encoder, which is the same function.
X-RLflow's stand-in has neither softmax, norms, positions, mask nor tanh, and pairs each frame with one label only.

Our own choices: a frame is 30 ms of sound as 4 stacked vectors of 128 log-mel energies (the paper's features), which a
linear layer takes to the model's width, as in that implementation; 32 labels, about what is spoken in 80 frames; 29
classes: LibriSpeech's 26 letters, apostrophe and space, and the blank, which also begins every text. The network has
48,634,909 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from environment.zoo.layers import GraphWriter, SeededWeights
from environment.zoo.transformer_layers import KEY_LAYOUT, MASKED, QUERY_LAYOUT, TransformerLayers

TO_THE_END = np.iinfo(np.int64).max  # how exporters write a slice without an end


@dataclass(frozen=True)
class TransducerConfig:
    """Sizes of a transformer transducer; the defaults are those of X-RLflow's graph.

    Attributes:
      frames, features: number of frames of the sound, and of energies in each frame.
      labels: length of the text so far, its start included.
      classes: labels to choose from, the blank included.
      hidden: width of both residual streams and of the joint network, a multiple of `heads`.
      audio_layers, label_layers, heads: blocks of each encoder, and attention heads in each block.
      feed_forward: width between the two linear layers of a block.
      epsilon: epsilon of every LayerNorm.
    """

    frames: int = 80
    features: int = 512
    labels: int = 32
    classes: int = 29
    hidden: int = 512
    audio_layers: int = 12
    label_layers: int = 2
    heads: int = 8
    feed_forward: int = 2048
    epsilon: float = 1e-5


TRANSDUCER = TransducerConfig()
TRANSDUCER_TINY = TransducerConfig(
    frames=20, features=24, labels=6, classes=10, hidden=32, audio_layers=2, label_layers=1, heads=2, feed_forward=64
)
NETWORKS = {"transformer-transducer": TRANSDUCER, "transformer-transducer-tiny": TRANSDUCER_TINY}


def build(name: str, config: TransducerConfig) -> onnx.ModelProto:
    """Builds the network with batch 1.

    Inputs `audio`: float32 [1, frames, features] and `labels`: int64 [1, labels], the text so far after a blank. Output
    `log_probabilities`: float32 [1, frames, labels, classes], of what follows each beginning of the labels.
    """
    sizes = (config.frames, config.hidden, config.heads, config.epsilon)
    audio_encoder = _Network(GraphWriter(name), SeededWeights(name), *sizes, config)
    label_encoder = replace(audio_encoder, tokens=config.labels)
    writer = audio_encoder.writer
    audio = writer.input("audio", [1, config.frames, config.features])
    labels = writer.input("labels", [1, config.labels], TensorProto.INT64)

    x = audio_encoder.linear(audio, "audio_encoder.input_fc", config.features, config.hidden)
    x = audio_encoder.blocks(x, "audio_encoder", config.audio_layers, causal=False)
    y = label_encoder.lookup(labels, "label_encoder.embedding", config.classes)
    y = label_encoder.blocks(y, "label_encoder", config.label_layers, causal=True)
    joint = audio_encoder.joint(x, y)
    writer.output("log_probabilities", joint, [1, config.frames, config.labels, config.classes])
    return writer.model()


def sinusoids(distances: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.float32]:
    """Returns sines and cosines in turn, [distances, width], with wavelengths from 2π to 20000π.

    Source: Vaswani et al. 2017, section 3.5.
    """
    angles = distances[:, None] * np.power(10000.0, -np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(distances), width).astype(np.float32)


@dataclass(frozen=True)
class _Network(TransformerLayers):
    """The layers of one encoder, with the number of its tokens, and of the joint network."""

    config: TransducerConfig

    def blocks(self, x: str, encoder: str, layers: int, *, causal: bool) -> str:
        """Writes all blocks of an encoder; if `causal`, no token attends to a later one, nor to its position."""
        distances = np.arange(self.tokens - 1, -1 if causal else -self.tokens, -1)
        positions = self.writer.weight(f"{encoder}.positional_encoding.pe", sinusoids(distances, self.hidden)[None])
        mask = self.writer.constant(self._later_tokens(), np.float32, self.scope(encoder)) if causal else None
        for layer in range(layers):
            x = self.block(x, f"{encoder}.encoder_layers.{layer}", positions, len(distances), mask)
        return x

    def block(self, x: str, module: str, positions: str, num_positions: int, mask: str | None) -> str:
        """Writes a block: attention and feed-forward, each added to the normalised values that it reads."""
        scope = self.scope(module)
        x = self.layer_norm(x, f"{module}.attention_norm")
        attended = self.relative_attention(x, f"{module}.self_attn", positions, num_positions, mask)
        x = self.writer.node("Add", attended, x, scope=scope)
        x = self.layer_norm(x, f"{module}.feed_forward_norm")
        wide = self.linear(x, f"{module}.feed_forward.w_1", self.hidden, self.config.feed_forward)
        wide = self.writer.node("Relu", wide, scope=f"{scope}/feed_forward/activation")
        narrow = self.linear(wide, f"{module}.feed_forward.w_2", self.config.feed_forward, self.hidden)
        return self.writer.node("Add", narrow, x, scope=scope)

    def relative_attention(self, x: str, module: str, positions: str, num_positions: int, mask: str | None) -> str:
        """Writes attention with scores (q + u) · k + (q + v) · r, where r projects the distance's sinusoids."""
        writer, scope = self.writer, self.scope(module)
        query, key, value = (
            self.split_heads(self.linear(x, f"{module}.linear_{role}", self.hidden, self.hidden), module)
            for role in "qkv"
        )
        key = writer.node("Transpose", key, scope=scope, perm=KEY_LAYOUT)
        value = writer.node("Transpose", value, scope=scope, perm=QUERY_LAYOUT)
        r = self.projection(positions, f"{module}.linear_pos", self.hidden, self.hidden)
        r = writer.node("Transpose", self.split_heads(r, module, num_positions), scope=scope, perm=KEY_LAYOUT)
        by_content = writer.node("MatMul", self._biased(query, f"{module}.pos_bias_u", scope), key, scope=scope)
        by_distance = writer.node("MatMul", self._biased(query, f"{module}.pos_bias_v", scope), r, scope=scope)
        by_position = self.aligned(by_distance, num_positions, scope)
        scores = self.scaled(writer.node("Add", by_content, by_position, scope=scope), module)
        if mask is not None:
            scores = writer.node("Add", scores, mask, scope=scope)
        attended = self.attend(scores, value, module)
        return self.linear(attended, f"{module}.linear_out", self.hidden, self.hidden)

    def aligned(self, scores: str, num_positions: int, scope: str) -> str:
        """Writes scores by distance [1, heads, tokens, positions] -> by token [1, heads, tokens, tokens].

        Row i has to move to the left by tokens - 1 - i places. A column of zeros in front and two reshapes do so.

        Source: Dai et al. 2019, appendix B.
        """
        writer, rows = self.writer, [1, self.heads, self.tokens]
        zeros = writer.constant(np.zeros([*rows, 1]), np.float32, scope)
        scores = writer.node("Concat", zeros, scores, scope=scope, axis=-1)
        longer = writer.constant([1, self.heads, num_positions + 1, self.tokens], np.int64, scope)
        scores = writer.node("Reshape", scores, longer, scope=scope, allowzero=0)
        scores = self._slice(scores, 1, TO_THE_END, 2, scope)
        shape = writer.constant([*rows, num_positions], np.int64, scope)
        scores = writer.node("Reshape", scores, shape, scope=scope, allowzero=0)
        return self._slice(scores, 0, self.tokens, 3, scope) if num_positions > self.tokens else scores

    def joint(self, audio: str, labels: str) -> str:
        """Writes two linear layers with tanh between, on all pairs of frame and label: [1, frames, labels, classes]."""
        writer, config = self.writer, self.config
        pairs = [1, config.frames, config.labels, self.hidden]
        sides = []
        for states, axis in ((audio, 2), (labels, 1)):
            states = writer.node("Unsqueeze", states, writer.constant([axis], np.int64, "/joint"), scope="/joint")
            shape = writer.constant(pairs, np.int64, "/joint")
            sides.append(writer.node("Expand", states, shape, scope="/joint"))
        x = writer.node("Concat", *sides, scope="/joint", axis=-1)
        x = self.linear(x, "joint.fc1", 2 * self.hidden, self.hidden)
        x = writer.node("Tanh", x, scope="/joint/tanh")
        x = self.linear(x, "joint.fc2", self.hidden, config.classes)
        return writer.node("LogSoftmax", x, scope="/joint", axis=-1)

    def _later_tokens(self) -> npt.NDArray[np.float32]:
        """Returns the mask [1, 1, tokens, tokens]: 0 up to the diagonal, the lowest float32 after it."""
        return np.triu(np.full([1, 1, self.tokens, self.tokens], MASKED), k=1)

    def _biased(self, query: str, name: str, scope: str) -> str:
        """Writes queries plus a learned vector for each head, laid out for the scores."""
        bias = self.weights.bias(name, self.hidden).reshape(self.heads, -1)
        query = self.writer.node("Add", query, self.writer.weight(name, bias), scope=scope)
        return self.writer.node("Transpose", query, scope=scope, perm=QUERY_LAYOUT)

    def _slice(self, x: str, start: int, end: int, axis: int, scope: str) -> str:
        limits = [self.writer.constant([value], np.int64, scope) for value in (start, end, axis, 1)]
        return self.writer.node("Slice", x, *limits, scope=scope)
