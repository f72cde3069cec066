"""Softmax attention on several tasks at once (arXiv 2402.19442)."""

# In which order reports and lists show the modules of claims, and the figures. What is not named
# comes last.
# fmt: off
ORDER = {
    "claims": (
        "dynamics", "emergence", "starts", "authors", "allocation", "saddle", "sampled", "escape",
        "optimality", "separation", "finite_length", "attention", "estimators", "linear",
        "transfer",
    ),
    "figures": (
        "phases", "architecture", "approximate-dynamics", "bound-and-bayes", "losses",
        "regimes", "regularisation", "saddle", "escape", "outcomes",
    ),
}
# fmt: on
