"""The training program of our systems: `python -m benchmarks.recovery.ours --output DIR --state-megabytes 400`.

It is written as docs say, with ebb/elastic's public API and nothing else. stock.py trains the same under torchrun.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from benchmarks.recovery.model import Noise, adam, perceptron
from ebb import elastic
from ebb.elastic import end_process, option, run_program

PROGRAM = "python -m benchmarks.recovery.ours"


@dataclass(frozen=True, kw_only=True)
class OurConfig(elastic.RunConfig):
    state_megabytes: float = option(5.0, "of the network and its optimizer, in MB of 10^6 bytes", low=0.01)
    samples: int = option(1440, "of an epoch", low=1)


def parse(arguments: list[str], environment: Mapping[str, str]) -> OurConfig:
    return elastic.parse(
        OurConfig, arguments, environment, program=PROGRAM, description="Train a perceptron on noise.", epilog="see systems.py"
    )


def learn(config: OurConfig, run: elastic.Run) -> None:
    """Train until it is ended from outside."""
    network = perceptron(config.state_megabytes)
    model = run.distribute(network)
    optimizer = adam(network)
    run.register_state(model=model, optimizer=optimizer)
    criterion = torch.nn.CrossEntropyLoss()
    for step in run.steps(run.loader(Noise(config.samples), workers=0)):
        for inputs, labels in step:
            step.backward(criterion(model(inputs), labels))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    end_process(run_program(sys.argv[1:], parse, learn))
