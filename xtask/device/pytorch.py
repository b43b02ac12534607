"""PyTorch on a real card: arrays, a matrix product, a training step, streams, graphs, its allocator and its limits."""

import torch


def say(what, value):
    print(f"{what}: {value}", flush=True)


torch.manual_seed(0)
say("available", torch.cuda.is_available())
say("cards", torch.cuda.device_count())
say("name", torch.cuda.get_device_name(0))
a = torch.arange(1 << 20, dtype=torch.float32, device="cuda").reshape(1024, 1024) % 7
say("product", int((a @ a).sum().item()))
say("half product", bool(torch.isfinite(a.half() @ a.half()).any()))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.ones(32, 64, device="cuda")
first = last = None
for _ in range(20):
    optimiser.zero_grad()
    loss = ((model(x) - 1) ** 2).mean()
    loss.backward()
    optimiser.step()
    last = loss.item()
    first = last if first is None else first
say("it learns", last < first)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    b = a * 2
stream.synchronize()
say("on a stream", bool((b == 2 * a).all()))
graph = torch.cuda.CUDAGraph()
held = torch.zeros(1024, device="cuda")
with torch.cuda.graph(graph):
    held += 1
for _ in range(3):
    graph.replay()
torch.cuda.synchronize()
say("a graph", held.sum().item())
free, total = torch.cuda.mem_get_info()
say("free is within the total", 0 < free <= total)
try:
    torch.empty(total + (1 << 30), dtype=torch.uint8, device="cuda")
    say("more than there is", "given")
except torch.cuda.OutOfMemoryError:
    say("more than there is", "OutOfMemoryError")
del a, b
torch.cuda.empty_cache()
say("memory comes back", torch.cuda.memory_reserved() < 1 << 30)
