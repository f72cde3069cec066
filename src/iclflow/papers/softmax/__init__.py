"""In-context regression by softmax attention (arXiv 2503.12734)."""

# In which order reports and lists show the modules of claims, and the figures. What is not named
# comes last.
# fmt: off
ORDER = {
    "claims": (
        "trained", "seeds", "one_head", "exact", "quadrature", "more_heads", "large_context",
        "dynamics", "estimators", "notebook", "context", "tasks",
    ),
    "figures": (
        "heads", "evolution", "attnmtrx-dynamic", "metrics-pattern", "seeds", "landscape",
        "manifold", "approximation", "dynamic-approx", "norm-histograms", "estimators",
        "est-comparison", "context", "head-num-comparison", "dynamics", "anisotropic", "tasks",
        "split-heads",
    ),
}
# fmt: on
