"""In-context regression by softmax attention (arXiv 2503.12734)."""

# In which order reports and lists show the modules of claims, and the figures. What is not named
# comes last.
# fmt: off
ORDER = {
    "claims": (
        "trained", "seeds", "one_head", "exact", "quadrature", "more_heads", "dynamics",
        "estimators", "context", "tasks",
    ),
    "figures": (
        "heads", "evolution", "seeds", "landscape", "manifold", "approximation",
        "estimators", "context", "dynamics", "anisotropic", "tasks",
    ),
}
# fmt: on
