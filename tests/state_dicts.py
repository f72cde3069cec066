"""State dicts of attention layers with known heads, as PyTorch code would save them."""

import numpy as np

DIM = 5
OMEGA, MU = (0.13, -0.13, 0.0), (3.45, -3.45, 0.01)


def stacked(
    omega=OMEGA, mu=MU, dim=DIM, outputs=1, seed=0, width: int | None = None
) -> dict[str, np.ndarray]:
    """A state dict as the authors of arXiv 2503.12734 train it: heads as wide as a token (or
    wider), queries, keys and values stacked by rows, scores divided by the square root of the
    width."""
    generator, token = np.random.default_rng(seed), dim + 1
    width = token if width is None else width
    parts = {name: [] for name in "qkvo"}
    for w, m in zip(omega, mu):
        turn, _ = np.linalg.qr(generator.normal(size=(width, token)))
        mix, _ = np.linalg.qr(generator.normal(size=(width, token)))
        product = np.zeros((token, token))
        product[:dim, :dim] = w * np.sqrt(width) * np.eye(dim)
        row = np.zeros(token)
        row[-1] = m
        parts["k"].append(turn)
        parts["q"].append(turn @ product)
        parts["v"].append(mix)
        parts["o"].append(np.vstack([generator.normal(size=(outputs - 1, width)), row @ mix.T]))
    tensors = {f"layer.{n}_proj.weight": np.concatenate(parts[n]) for n in "qkv"}
    return tensors | {"layer.o_proj.weight": np.concatenate(parts["o"], axis=1)}


def two_labels(heads=2, width=4, dim=6, seed=2) -> dict[str, np.ndarray]:
    """A state dict with random weights, two labels a token and two outputs."""
    generator, rows, token = np.random.default_rng(seed), heads * width, dim + 2
    shapes = {"q": (rows, token), "k": (rows, token), "v": (rows, token), "o": (2, rows)}
    return {f"{name}_proj.weight": generator.normal(size=s) for name, s in shapes.items()}
