"""Figures of arXiv 2503.12734: ω and μ in training, correlated inputs, several tasks."""

import numpy as np

from .. import theory
from ..analysis import superposition
from ..claims import Lab
from ..claims._softmax_task_runs import (
    anisotropic_mean,
    anisotropic_task,
    two_task_run,
    two_task_sizes,
    two_tasks,
)
from ..claims.softmax_dynamics import (
    RATE,
    dynamics_run,
    dynamics_sizes,
    matrix_pair_flow,
    run_numbers,
)
from ._base import Drawing
from ._heads import draw_circuit
from ._style import COLOURS, THEORY, canvas, legend_above


def dynamics(lab: Lab) -> Drawing:
    """ω and μ of a trained pair against steps, with the reduced flow on top."""
    run = dynamics_run(lab)
    omega, mu = run_numbers(run)
    w, m = lab.once("softmax matrix flow", lambda: matrix_pair_flow(2 * RATE * run.times))
    figure, panels = canvas("double", 2.5, 1, 2)
    for panel, values, predicted, name in zip(panels, (omega, mu), (w, m), "ωμ"):
        for h, sign in enumerate((1, -1)):
            panel.plot(run.times, values[:, h], color=COLOURS[h], label=f"head {h + 1}")
            panel.plot(run.times, sign * predicted, label=None if h else "reduced flow", **THEORY)
        panel.axhline(0, color="0.8", lw=0.7, zorder=0)
        panel.set(xlabel="step", ylabel=name)
    legend_above(figure, panels[0])
    batch, steps = dynamics_sizes(lab)
    data = {"step": run.times, "omega": omega, "mu": mu, "theory_omega": w, "theory_mu": m}
    return Drawing(figure, data, {"rate": RATE, "batch": batch, "steps": steps, "start": 0.1})


def anisotropic(lab: Lab) -> Drawing:
    """The matrix that a pair learns on inputs of unequal variances."""
    task, model = anisotropic_task(), anisotropic_mean(lab)
    weights, values = np.asarray(model.U), np.asarray(model.v)
    learned = np.einsum("hde,h->de", weights, values)
    best = theory.debiased_matrix(task)
    figure, panels = canvas("double", 2.3, 1, 4)
    limit, largest = float(np.abs(weights).max()), float(np.abs(best).max())
    for panel, matrix, name, scale in (
        (panels[0], weights[0], "key-query of head 1", limit),
        (panels[1], weights[1], "key-query of head 2", limit),
        (panels[2], learned, "Σ μW, learned", largest),
    ):
        image = draw_circuit(panel, matrix, scale)
        panel.set(xticks=[], yticks=[], xlabel=name)
        figure.colorbar(image, ax=panel, shrink=0.7, location="top")
    spectrum = np.diag(np.asarray(task.covariance))
    d = panels[3]
    d.plot(spectrum, np.diag(learned), "o", mfc="none", color=COLOURS[0], label="learned")
    fine = np.linspace(spectrum.min(), spectrum.max(), 60)
    penalty = 1 / best[0, 0] - spectrum[0]
    d.plot(fine, 1 / (fine + penalty), label="theory", **THEORY)
    d.set(xlabel="eigenvalue λ of Σ", ylabel="entry of the matrix")
    d.legend()
    data = {"key_query": weights, "value": values, "learned": learned, "theory": best}
    batch, steps = dynamics_sizes(lab)
    config = {"eigenvalues": spectrum.tolist(), "rate": RATE, "batch": batch, "steps": steps}
    return Drawing(figure, data, config)


def tasks(lab: Lab) -> Drawing:
    """Two tasks on overlapping coordinates: what three and five heads do."""
    task = two_tasks()
    figure, panels = canvas("double", 3.0, 2, 2, squeeze=False)
    panels = panels.reshape(2, 2)
    data: dict[str, np.ndarray] = {}
    for column, count in enumerate((3, 5)):
        model = two_task_run(lab, count).final
        omega, mu = np.asarray(model.omega)[:count], np.asarray(model.mu)[:count]
        shared = superposition(model, task)
        draw_circuit(panels[0, column], omega)
        draw_circuit(panels[1, column], mu.T)
        panels[0, column].set(ylabel="head", yticks=range(count), xlabel="coordinate: ω")
        panels[0, column].set_yticklabels([str(h + 1) for h in range(count)])
        panels[0, column].set_xticks(range(task.dim), [str(i + 1) for i in range(task.dim)])
        panels[0, column].set_title(f"H = {count}")
        panels[1, column].set(ylabel="task", yticks=(0, 1), xlabel="head: μ", xticks=range(count))
        panels[1, column].set_yticklabels(["1", "2"])
        panels[1, column].set_xticklabels([str(h + 1) for h in range(count)])
        data |= {f"omega_{count}": omega, f"mu_{count}": mu}
        data[f"tasks_per_head_{count}"] = shared.tasks_per_head[:count]
    steps, batch = two_task_sizes(lab)
    config = {"coordinates": [list(read) for read in task.coordinates], "context": 48}
    return Drawing(figure, data, config | {"steps": steps, "batch": batch})
