"""A posterior for an LSTM that was trained with PyTorch.

The network gets noisy readings of a hidden level and predicts the level. It is trained with PyTorch in a few
seconds. Its weights are then converted: the mean of the belief is the prediction of the network, and its
standard deviation is compared with that of the exact posterior.
"""

import jax.numpy as jnp
import torch

import recurrent_laplace as rl

STEPS, NOISE = 30, 1.0


def readings(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences `(T, B, 1)` around levels `(B, 1)`."""
    level = torch.randn(batch, 1)
    return level + NOISE * torch.randn(STEPS, batch, 1), level


def train(lstm: torch.nn.LSTM, readout: torch.nn.Linear, updates: int = 400) -> float:
    """Say the level after each reading: the mean squared error in the end."""
    optimizer = torch.optim.Adam([*lstm.parameters(), *readout.parameters()], lr=1e-2)
    errors = []
    for _ in range(updates):
        x, level = readings(64)
        loss = torch.mean((readout(lstm(x)[0]) - level) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(loss.item())
    return sum(errors[-50:]) / 50


def main() -> None:
    """Train in torch, convert, and read the belief along one sequence."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    lstm, readout = torch.nn.LSTM(1, 16), torch.nn.Linear(16, 1)
    print(f"trained in torch: mean squared error {train(lstm, readout):.3f}")

    memory = rl.interop.torch.from_torch(lstm, readout)
    posterior = rl.LaplacePosterior(memory)
    x, level = readings(1)
    beliefs = posterior.unroll(jnp.asarray(x[:, 0].numpy()))

    with torch.no_grad():
        said = readout(lstm(x)[0])[:, 0].numpy()
    print(f"largest difference from torch's own outputs: {jnp.abs(beliefs.mean - said).max():.0e}")
    print(f"the level is {level.item():.2f}\nreadings   mean   stddev   entropy, nats   exact stddev")
    for t in (1, 2, 5, 10, 20, 30):
        belief = beliefs[t - 1]
        stddev, exact = jnp.sqrt(belief.variance()[0]), (1 + t / NOISE**2) ** -0.5
        print(f"{t:8} {belief.mean[0]:6.2f} {stddev:8.3f} {belief.entropy():15.2f} {exact:14.3f}")


if __name__ == "__main__":
    main()
