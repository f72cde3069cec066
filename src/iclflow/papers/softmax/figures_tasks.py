"""Figures of arXiv 2503.12734: ω and μ in training, correlated inputs, several tasks."""

import numpy as np

from ... import theory
from ...analysis import superposition
from ...drawing import Axes, Drawing
from ...drawing.heads import draw_circuit
from ...drawing.marks import plot_bars, plot_circles, plot_theory
from ...drawing.style import COLOURS, WIDTHS, canvas, colour_bar, fixed_canvas, legend_above
from .. import Lab, figure
from .runs import DIM
from .runs_descent import (
    RATE,
    anisotropic_mean,
    anisotropic_task,
    descent_settings,
    dynamics_run,
    matrix_pair_flow,
    run_numbers,
    two_task_excess,
    two_task_run,
    two_task_settings,
    two_tasks,
)

_SHOWN, _MEASURED = (3, 5), (2, 3, 5)
# Inches: a cell of a heat map.
_CELL = 0.19


@figure(
    "softmax/dynamics",
    "Softmax attention: training follows the reduced flow",
    """Two heads with full key-query matrices, started at ±0.1 I and trained by stochastic
    gradient descent with labels integrated out: (a) ω, the mean of the diagonal, and (b) μ of
    both heads at the recorded steps (circles), and the gradient flow of the pair (dashed,
    theory), in which a step of rate η is a time of 2η.""",
)
def dynamics(lab: Lab) -> Drawing:
    """ω and μ of a trained pair against steps, with the reduced flow on top."""
    run = dynamics_run(lab)
    omega, mu = run_numbers(run)
    fine = np.linspace(0, run.times[-1], 200)
    w, m = lab.compute(matrix_pair_flow, 2 * RATE * fine)
    figure, panels = canvas("double", 2.5, 1, 2)
    for panel, values, predicted, name in zip(panels, (omega, mu), (w, m), "ωμ"):
        for h in range(2):
            plot_circles(panel, run.times, values[:, h], COLOURS[h], f"head {h + 1}, trained")
        for sign in (1, -1):
            label = "reduced flow (theory)" if sign > 0 else None
            plot_theory(panel, fine, sign * predicted, label)
        panel.axhline(0, color="0.8", lw=0.7, zorder=0)
        panel.set(xlabel="step", ylabel=name)
    legend_above(figure, panels[0])
    data = {"step": run.times, "omega": omega, "mu": mu}
    data |= {"theory_step": fine, "theory_omega": w, "theory_mu": m}
    settings = {"start_omega": float(omega[0, 0]), "start_mu": float(mu[0, 0]), "seed_sequences": 6}
    return Drawing(figure, data, descent_settings(lab) | settings)


@figure(
    "softmax/anisotropic",
    "Softmax attention on inputs of unequal variances",
    """(a, b) Key-query matrices of a trained pair, (c) the matrix Σ μW that it applies to
    the gradient, all in the eigenbasis of the covariance Λ of the inputs. (d) The diagonal of
    that matrix (circles) against the eigenvalues of Λ, and the preconditioner
    1/(λ + (tr Λ + dσ²)/L) (dashed, theory).""",
)
def anisotropic(lab: Lab) -> Drawing:
    """The matrix that a pair learns on inputs of unequal variances."""
    task, model = anisotropic_task(), anisotropic_mean(lab)
    weights, values = np.asarray(model.circuits.U), np.asarray(model.circuits.v)
    learned = np.einsum("hde,h->de", weights, values)
    best = theory.debiased_matrix(task)
    figure, panels = canvas("double", 2.4, 1, 4)
    limit, largest = float(np.abs(weights).max()), float(np.abs(best).max())
    names = [f"$λ_{{{i + 1}}}$" for i in range(DIM)]
    for panel, matrix, name, scale in (
        (panels[0], weights[0], "key-query of head 1", limit),
        (panels[1], weights[1], "key-query of head 2", limit),
        (panels[2], learned, "Σ μW, learned", largest),
    ):
        image = draw_circuit(panel, matrix, scale)
        panel.set(xlabel=name)
        panel.set_xticks(range(DIM), names)
        panel.set_yticks(range(DIM), names if panel is panels[0] else [])
        figure.colorbar(image, ax=panel, shrink=0.8, location="top")
    spectrum = np.diag(np.asarray(task.covariance))
    d = panels[3]
    plot_circles(d, spectrum, np.diag(learned), COLOURS[0], "learned")
    fine = np.linspace(spectrum.min(), spectrum.max(), 60)
    # Theory has 1/(λ + c) on the diagonal, with one c for all eigenvalues.
    penalty = 1 / best[0, 0] - spectrum[0]
    plot_theory(d, fine, 1 / (fine + penalty), "theory")
    d.set(xlabel="eigenvalue λ of Λ", ylabel="diagonal of Σ μW")
    d.legend()
    data = {"eigenvalue": spectrum, "key_query": weights, "value": values, "learned": learned}
    data |= {"theory": best, "theory_eigenvalue": fine, "theory_diagonal": 1 / (fine + penalty)}
    settings = {"eigenvalues": spectrum.tolist(), "averaged": "second half of the run"}
    settings |= {"seed_weights": 12, "seed_sequences": 7}
    return Drawing(figure, data, descent_settings(lab) | settings)


@figure(
    "softmax/tasks",
    "Softmax attention on two overlapping tasks",
    """Task 1 reads the coordinates S₁ = 1 to 4, task 2 reads S₂ = 3 to 6. (a, b) What three
    and five trained heads attend to, ω for each coordinate, and return for each task, μ; a row
    is a head, colours have one scale for both models. Heads work for both tasks at once, also
    where there are enough for a pair each: beside each row the number of tasks that the head
    works for, (Σs)²/Σs² with s = |μω̄|. (c) Loss beyond the noise, mean of both tasks with
    standard errors, against the smallest that so many small heads allow (dashed): from three
    heads on, the floor of debiased gradient descent for each task. Trained heads stay up to
    3 % above it, since their attention is finite.""",
)
def tasks(lab: Lab) -> Drawing:
    """Two tasks on overlapping coordinates: what heads do, and how many are needed."""
    task = two_tasks()
    finals = {count: two_task_run(lab, count).final for count in _SHOWN}
    weights = {
        count: [np.asarray(w)[:count] for w in (model.circuits.omega, model.circuits.mu)]
        for count, model in finals.items()
    }
    scales = [max(float(np.abs(pair[i]).max()) for pair in weights.values()) for i in (0, 1)]
    figure, place = fixed_canvas(WIDTHS["double"], 2.55)
    top, lefts, images = 1.92, (0.42, 2.95), []
    data: dict[str, np.ndarray] = {}
    for letter, left, count in zip("ab", lefts, _SHOWN):
        omega, mu = weights[count]
        bottom, height = top - count * _CELL, count * _CELL
        a = place(left, bottom, task.dim * _CELL, height)
        b = place(left + (task.dim + 0.5) * _CELL, bottom, task.labels * _CELL, height)
        images = [draw_circuit(a, omega, scales[0]), draw_circuit(b, mu, scales[1])]
        # The brackets above must not stretch the map.
        a.autoscale(False)
        a.set_xticks(range(task.dim), [str(i + 1) for i in range(task.dim)])
        a.set_yticks(range(count), [str(h + 1) for h in range(count)])
        a.set(xlabel="ω by coordinate", ylabel="head")
        b.set_xticks(range(task.labels), [str(i + 1) for i in range(task.labels)])
        b.set(xlabel="μ by task", yticks=[])
        shared = superposition(finals[count], task).tasks_per_head[:count]
        for h, value in enumerate(shared):
            b.text(1.75, h, f"{value:.1f}", va="center")
        b.text(1.75, -0.75, "tasks\nper head", va="bottom")
        _mark_sets(a, task.coordinates)
        a.text(-1.4, -2.6, letter, weight="bold", va="bottom")
        a.text(-0.5, -2.6, f"H = {count}", va="bottom")
        data |= {f"omega_{count}": omega, f"mu_{count}": mu, f"tasks_per_head_{count}": shared}
    for i, (name, left) in enumerate((("ω", 0.55), ("μ", 1.9))):
        colour_bar(figure, images[i], place(left, 0.42, 1.0, 0.09), name, flat=True)
    data |= _draw_excess(lab, place(5.75, 0.42, 1.17, 1.65))
    settings = two_task_settings(lab, _MEASURED) | {
        "optimiser": "Adam, annealed along a cosine, labels integrated out", "rate": 0.05,
        "seed_weights": 20, "seed_sequences": 8,
    }  # fmt: skip
    return Drawing(figure, data, settings)


def _mark_sets(panel: Axes, sets) -> None:
    """Brackets above a heat map over the coordinates that each task reads."""
    for i, read in enumerate(sets):
        # One above the other, since the sets overlap.
        height, ends = -0.85 - 0.85 * (len(sets) - 1 - i), (min(read) - 0.4, max(read) + 0.4)
        corners = (height + 0.25, height, height, height + 0.25)
        panel.plot(np.repeat(ends, 2), corners, color="black", lw=0.8, clip_on=False)
        panel.text(ends[0] - 0.15 if i else ends[1] + 0.15, height, f"$S_{i + 1}$",
                   va="center", ha="right" if i else "left")  # fmt: skip


def _draw_excess(lab: Lab, panel: Axes) -> dict[str, np.ndarray]:
    """Mean excess of the two tasks against the number of heads, measured and the best possible."""
    found = [two_task_excess(lab, count) for count in _MEASURED]
    values, errors = (
        np.asarray([float(getattr(each, name)) for each in found])
        for name in ("value", "standard_error")
    )
    counts = np.arange(2, max(_MEASURED) + 1)
    best = np.asarray([theory.shared_steps(two_tasks(), int(h)).excess.mean() for h in counts])
    plot_bars(panel, counts, best, 0.35, "smallest\n(theory)")
    panel.errorbar(_MEASURED, values, errors, fmt="o", ms=4.5, mfc="none", capsize=3, lw=1.2,
                   color=COLOURS[0], label="trained")  # fmt: skip
    panel.set(xlabel="heads H", ylabel="loss − σ²", xticks=counts)
    panel.set(xlim=(1.5, counts[-1] + 0.5))
    panel.legend(loc="upper right", borderaxespad=0.0, handlelength=1.6)
    panel.set_title("c", loc="left", weight="bold")
    return {"heads": np.asarray(_MEASURED), "excess": values, "excess_error": errors,
            "theory_heads": counts, "theory_excess": best}  # fmt: skip
