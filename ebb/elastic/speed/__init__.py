"""Fast computation of a step: numbers, memory layout, compilation, the sharing of gradients.

    speed = choose(device, "resnet50"); print(speed)
    network = speed.prepare(network, device)
    shared = speed.wrap(network, world_size, accumulates=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, **speed.optimizer_options(device))

    settings.py     what can be set, what it does to a network, DistributedDataParallel as tuned here: Speed
    choice.py       what is taken on which device, and why
    compilation.py  torch.compile with results that outlive the process and the machine
    memory.py       a process that trains on the CPU keeps the memory that it frees

`Speed()` is plain torch: 32 bits, nothing compiled. Everything else is chosen or asked for.
"""

from ebb.elastic.speed.choice import SpeedOptions, choose
from ebb.elastic.speed.compilation import CompileCache
from ebb.elastic.speed.settings import Speed

__all__ = ["CompileCache", "Speed", "SpeedOptions", "choose"]
