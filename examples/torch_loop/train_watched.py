"""Train a small causal transformer to solve linear regression in context (PyTorch)."""

import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import iclflow as icl

config = {
    "n_dims": 5,
    "n_points": 16,
    "noise_std": 0.5,
    "d_model": 32,
    "n_layer": 2,
    "n_head": 2,
    "batch_size": 64,
    "lr": 1e-3,
    "weight_decay": 0.01,
    "steps": 2000,
    "log_every": 100,
    "seed": 0,
}


class Logger:
    """Prints what a call of wandb.log would send."""

    def __init__(self, config):
        print(json.dumps(config))

    def log(self, metrics, step):
        print(json.dumps({"step": step, **metrics}))


class Block(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.n_head = n_head
        self.ln_1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.ln_2 = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(self, h):
        B, T, C = h.shape
        q, k, v = self.qkv(self.ln_1(h)).chunk(3, dim=-1)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.proj(a.transpose(1, 2).reshape(B, T, C))
        return h + self.mlp(self.ln_2(h))


class TransformerModel(nn.Module):
    """Reads x_1, y_1, ..., x_n, y_n and predicts y at every x."""

    def __init__(self, n_dims, n_points, d_model, n_layer, n_head):
        super().__init__()
        self.read_in = nn.Linear(n_dims, d_model)
        self.pos = nn.Parameter(torch.randn(2 * n_points, d_model) * 0.02)
        self.blocks = nn.ModuleList([Block(d_model, n_head) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(d_model)
        self.read_out = nn.Linear(d_model, 1)

    def forward(self, xs, ys):
        B, T, D = xs.shape
        ys_wide = torch.cat([ys[..., None], ys.new_zeros(B, T, D - 1)], dim=-1)
        zs = torch.stack([xs, ys_wide], dim=2).view(B, 2 * T, D)
        h = self.read_in(zs) + self.pos[: 2 * T]
        for block in self.blocks:
            h = block(h)
        return self.read_out(self.ln_f(h))[:, ::2, 0]


def sample_batch(cfg):
    xs = torch.randn(cfg["batch_size"], cfg["n_points"], cfg["n_dims"])
    w = torch.randn(cfg["batch_size"], cfg["n_dims"], 1) / math.sqrt(cfg["n_dims"])
    ys = (xs @ w).squeeze(-1)
    return xs, ys + cfg["noise_std"] * torch.randn_like(ys)


def train(cfg):
    torch.manual_seed(cfg["seed"])
    model = TransformerModel(
        cfg["n_dims"], cfg["n_points"], cfg["d_model"], cfg["n_layer"], cfg["n_head"]
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"]
    )
    logger = Logger(cfg)
    task = icl.LinearRegression([1.0] * 5, 15, prior_covariance=torch.eye(5) / 5, noise=0.25)
    call = lambda model, x, y, q: model(torch.cat([x, q[:, None]], 1), F.pad(y, (0, 1)))
    watch = icl.watch(task, icl.watch.torch(model, call), out="runs/icl", log=logger.log)
    start = time.time()
    for step in range(cfg["steps"]):
        watch(step)
        xs, ys = sample_batch(cfg)
        loss = F.mse_loss(model(xs, ys), ys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % cfg["log_every"] == 0:
            logger.log({"loss": loss.item(), "seconds": time.time() - start}, step=step)
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=config["steps"])
    args = parser.parse_args()
    train({**config, "steps": args.steps})
