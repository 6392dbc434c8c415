"""DALL·E mini, T5 and the transformer transducer compute the equations of their papers, written as loops in NumPy."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import zoo
from environment.zoo.dalle_mini import DALLE_MINI, DALLE_MINI_TINY, DalleMiniConfig
from environment.zoo.t5 import T5_SMALL_TINY, T5Config, buckets_of_distances
from environment.zoo.transformer_transducer import TRANSDUCER, TRANSDUCER_TINY, TransducerConfig

EPSILON = 1e-5


class Reference:
    """The parameters of a network in float64, and its layers for one token sequence at a time."""

    def __init__(self, model: onnx.ModelProto) -> None:
        tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.parameters = {name: values.astype(np.float64) for name, values in tensors.items()}

    def linear(self, x: np.ndarray, module: str) -> np.ndarray:
        return x @ self.parameters[f"{module}.weight"] + self.parameters.get(f"{module}.bias", 0.0)

    def layer_norm(self, x: np.ndarray, module: str) -> np.ndarray:
        """Normalises the last axis (Ba et al. 2016, equation 4)."""
        deviations = x - x.mean(axis=-1, keepdims=True)
        normalised = deviations / np.sqrt((deviations**2).mean(axis=-1, keepdims=True) + EPSILON)
        return normalised * self.parameters[f"{module}.weight"] + self.parameters[f"{module}.bias"]


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def gelu(x: np.ndarray) -> np.ndarray:
    """Returns x times the normal distribution function (Hendrycks and Gimpel 2016)."""
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def dalle_mini(model: onnx.ModelProto, config: DalleMiniConfig, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Computes a BART encoder with NormFormer's norms (Shleifer et al. 2021, equation 1) and a GEGLU.

    Source of the GEGLU: Shazeer 2020, equation 6.
    """
    net, width = Reference(model), config.hidden // config.heads
    x = net.parameters["embed_tokens.weight"][ids] + net.parameters["embed_positions.weight"][: len(ids)]
    x = net.layer_norm(x, "layernorm_embedding")
    for block in (f"layers.{layer}" for layer in range(config.layers)):
        read = net.layer_norm(x, f"{block}.pre_self_attn_layer_norm")
        q, k, v = (net.linear(read, f"{block}.self_attn.{role}_proj") for role in "qkv")
        found = np.zeros_like(x)
        for head in (slice(h * width, (h + 1) * width) for h in range(config.heads)):
            for i in range(len(ids)):
                scores = np.array([q[i, head] @ k[j, head] / math.sqrt(width) for j in np.flatnonzero(mask)])
                found[i, head] = softmax(scores) @ v[np.flatnonzero(mask), head]
        x = x + net.layer_norm(net.linear(found, f"{block}.self_attn.out_proj"), f"{block}.self_attn_layer_norm")
        read = net.layer_norm(x, f"{block}.glu.ln0")
        gated = gelu(net.linear(read, f"{block}.glu.fc0")) * net.linear(read, f"{block}.glu.fc1")
        x = x + net.linear(net.layer_norm(gated, f"{block}.glu.ln1"), f"{block}.glu.fc2")
    return net.layer_norm(x, "final_ln")


def t5(model: onnx.ModelProto, config: T5Config, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Computes the encoder of Raffel et al. 2020, section 2.1: norms by the root mean square, no biases of layers.

    The bias of a score is drawn from a table by the bucket of the distance from the query i to the key j.
    """
    net, width = Reference(model), config.hidden // config.heads

    def norm(x: np.ndarray, module: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + config.epsilon) * net.parameters[f"{module}.weight"]

    biases = net.parameters["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    x = net.parameters["shared.weight"][ids]
    for block in (f"encoder.block.{layer}" for layer in range(config.layers)):
        read, attention = norm(x, f"{block}.layer.0.layer_norm"), f"{block}.layer.0.SelfAttention"
        q, k, v = (net.linear(read, f"{attention}.{role}") for role in "qkv")
        found = np.zeros_like(x)
        for number in range(config.heads):
            head = slice(number * width, (number + 1) * width)
            for i in range(len(ids)):
                seen = np.flatnonzero(mask)
                scores = [q[i, head] @ k[j, head] + biases[t5_bucket(j - i, config), number] for j in seen]
                found[i, head] = softmax(np.array(scores)) @ v[seen, head]
        x = x + net.linear(found, f"{attention}.o")
        wide = net.linear(norm(x, f"{block}.layer.1.layer_norm"), f"{block}.layer.1.DenseReluDense.wi")
        x = x + net.linear(np.maximum(wide, 0), f"{block}.layer.1.DenseReluDense.wo")
    return norm(x, "encoder.final_layer_norm")


def t5_bucket(distance: int, config: T5Config) -> int:
    """Returns the bucket of a distance: one for each short one, then one for each equal step of the logarithm."""
    half, far = config.buckets // 2, abs(distance)
    bucket = far
    if far >= half // 2:
        steps = math.log(far / (half / 2)) / math.log(config.longest / (half / 2))
        bucket = min(half // 2 + int(steps * (half - half // 2)), half - 1)
    return bucket + (half if distance > 0 else 0)


def sinusoid(distance: int, size: int) -> np.ndarray:
    """Returns the encoding of Vaswani et al. 2017, section 3.5, for a distance in place of a position."""
    angles = [distance / 10000 ** (2 * (i // 2) / size) for i in range(size)]
    return np.array([math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)])


def relative_attention(net: Reference, x: np.ndarray, module: str, heads: int, causal: bool) -> np.ndarray:
    """Computes attention with four terms of a score for every query i and key j at distance i - j.

    Source: Dai et al. 2019, section 3.3.
    """
    width = x.shape[1] // heads
    q, k, v = (net.linear(x, f"{module}.linear_{role}") for role in "qkv")
    u, w = net.parameters[f"{module}.pos_bias_u"], net.parameters[f"{module}.pos_bias_v"]
    distances = range(1 - len(x), len(x))
    positions = {each: net.linear(sinusoid(each, x.shape[1]), f"{module}.linear_pos") for each in distances}
    found = np.zeros_like(x)
    for h, head in enumerate(slice(h * width, (h + 1) * width) for h in range(heads)):
        for i in range(len(x)):
            seen = range(i + 1 if causal else len(x))
            r = {j: positions[i - j][head] for j in seen}
            scores = [q[i, head] @ k[j, head] + q[i, head] @ r[j] + u[h] @ k[j, head] + w[h] @ r[j] for j in seen]
            found[i, head] = softmax(np.array(scores) / math.sqrt(width)) @ v[: len(seen), head]
    return net.linear(found, f"{module}.linear_out")


def transducer_encoder(net: Reference, x: np.ndarray, encoder: str, layers: int, heads: int) -> np.ndarray:
    """Computes LayerNorm(x) + AttentionLayer(LayerNorm(x)) in each block, and the same for feed-forward.

    Source: Zhang et al. 2020, section 2.2.
    """
    for block in (f"{encoder}.encoder_layers.{layer}" for layer in range(layers)):
        x = net.layer_norm(x, f"{block}.attention_norm")
        x = x + relative_attention(net, x, f"{block}.self_attn", heads, causal=encoder == "label_encoder")
        x = net.layer_norm(x, f"{block}.feed_forward_norm")
        wide = np.maximum(net.linear(x, f"{block}.feed_forward.w_1"), 0)
        x = x + net.linear(wide, f"{block}.feed_forward.w_2")
    return x


def transducer(model: onnx.ModelProto, config: TransducerConfig, audio: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Computes the log-softmax over a linear layer of tanh of linear layers of both encoders.

    Source: Zhang et al. 2020, section 2.1.
    """
    net = Reference(model)
    sound = net.linear(audio, "audio_encoder.input_fc")
    sound = transducer_encoder(net, sound, "audio_encoder", config.audio_layers, config.heads)
    text = net.parameters["label_encoder.embedding.weight"][labels]
    text = transducer_encoder(net, text, "label_encoder", config.label_layers, config.heads)
    of_sound, of_text = np.split(net.parameters["joint.fc1.weight"], 2)
    found = np.zeros([len(sound), len(text), config.classes])
    for t, u in np.ndindex(found.shape[:2]):
        joint = np.tanh(sound[t] @ of_sound + text[u] @ of_text + net.parameters["joint.fc1.bias"])
        found[t, u] = np.log(softmax(net.linear(joint, "joint.fc2")))
    return found


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {name: values[None] for name, values in feeds.items()})
    return np.asarray(output)[0]


def masked_text(config: DalleMiniConfig | T5Config, hidden_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns drawn tokens, and a mask that hides some of them."""
    generator = np.random.default_rng(0)
    ids = generator.integers(0, config.vocabulary, config.sequence)
    mask = np.ones(config.sequence, np.int64)
    mask[generator.permutation(config.sequence)[:hidden_tokens]] = 0
    return ids, mask


@pytest.mark.parametrize("hidden_tokens", [0, 5])
def test_dalle_mini_is_the_published_encoder(hidden_tokens: int) -> None:
    config, model = DALLE_MINI_TINY, zoo.build("dalle-mini-tiny")
    ids, mask = masked_text(config, hidden_tokens)
    output = run(model, input_ids=ids, attention_mask=mask)
    np.testing.assert_allclose(output, dalle_mini(model, config, ids, mask), atol=1e-5)


@pytest.mark.parametrize("hidden_tokens", [0, 5])
def test_t5_is_the_published_encoder(hidden_tokens: int) -> None:
    config, model = T5_SMALL_TINY, zoo.build("t5-small-tiny")
    ids, mask = masked_text(config, hidden_tokens)
    output = run(model, input_ids=ids, attention_mask=mask)
    np.testing.assert_allclose(output, t5(model, config, ids, mask), atol=1e-5)


def test_buckets_of_t5_are_the_published_ones() -> None:
    """From the paper, section 2.1: 32 buckets up to a distance of 128, beyond which all distances share one."""
    buckets = buckets_of_distances(200, 32, 128)
    assert list(buckets[:9, 0]) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert list(buckets[0, :9]) == [0, 17, 18, 19, 20, 21, 22, 23, 24]
    assert [int(buckets[distance, 0]) for distance in (11, 12, 127, 128, 199)] == [8, 9, 15, 15, 15]
    assert (np.diff(buckets[:, 0]) >= 0).all()
    assert set(buckets.ravel()) == set(range(32)) - {16}


def test_transducer_is_the_published_network() -> None:
    config, model = TRANSDUCER_TINY, zoo.build("transformer-transducer-tiny")
    generator = np.random.default_rng(0)
    audio = generator.standard_normal([config.frames, config.features], dtype=np.float32)
    labels = generator.integers(0, config.classes, config.labels)
    output = run(model, audio=audio, labels=labels)
    np.testing.assert_allclose(output, transducer(model, config, audio.astype(np.float64), labels), atol=1e-5)


def test_transducer_gives_probabilities_that_no_later_label_changes() -> None:
    config, model = TRANSDUCER_TINY, zoo.build("transformer-transducer-tiny")
    generator = np.random.default_rng(1)
    audio = generator.standard_normal([config.frames, config.features], dtype=np.float32)
    labels = generator.integers(0, config.classes, config.labels)
    before = run(model, audio=audio, labels=labels)
    np.testing.assert_allclose(np.exp(before).sum(axis=-1), 1.0, atol=1e-5)
    for changed in range(config.labels):
        other = labels.copy()
        other[changed] = (other[changed] + 3) % config.classes
        after = run(model, audio=audio, labels=other)
        np.testing.assert_allclose(after[:, :changed], before[:, :changed], atol=1e-6)
        assert np.abs(after[:, changed:] - before[:, changed:]).max(axis=(0, 2)).min() > 1e-3


def dalle_mini_parameters(config: DalleMiniConfig) -> int:
    """Counts the parameters of DALL·E mini, which has no biases.

    A block has 4 square and 3 wide matrices and 4 norms, one of them wide. Outside are two tables and 2 norms.
    """
    hidden, wide = config.hidden, config.feed_forward
    block = 4 * hidden**2 + 3 * hidden * wide + 3 * 2 * hidden + 2 * wide
    return (config.vocabulary + config.positions) * hidden + config.layers * block + 2 * 2 * hidden


def transducer_parameters(config: TransducerConfig) -> int:
    """Counts the parameters of a transformer transducer.

    A block has 5 square matrices, 4 of them with a bias, 2 position biases, 2 wide matrices and 2 norms. Outside are
    the layers that feed the encoders, and the joint network.
    """
    hidden, wide, classes = config.hidden, config.feed_forward, config.classes
    block = 5 * hidden**2 + 4 * hidden + 2 * hidden + 2 * hidden * wide + wide + hidden + 2 * 2 * hidden
    inputs = config.features * hidden + hidden + classes * hidden
    joint = 2 * hidden * hidden + hidden + hidden * classes + classes
    return (config.audio_layers + config.label_layers) * block + inputs + joint


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dalle-mini-tiny", dalle_mini_parameters(DALLE_MINI_TINY)),
        ("transformer-transducer-tiny", transducer_parameters(TRANSDUCER_TINY)),
    ],
)
def test_parameters_are_those_of_the_layers(name: str, expected: int) -> None:
    """Sinusoids do not count, because training does not change them."""
    learned = [tensor for tensor in zoo.build(name).graph.initializer if not tensor.name.endswith(".pe")]
    assert sum(math.prod(each.dims) for each in learned if each.data_type == onnx.TensorProto.FLOAT) == expected


def test_full_size_parameters_follow_from_the_published_sizes() -> None:
    """These are the figures that test_architecture.py counts in the graphs."""
    assert dalle_mini_parameters(DALLE_MINI) == 95_347_712
    assert transducer_parameters(TRANSDUCER) == 48_634_909
