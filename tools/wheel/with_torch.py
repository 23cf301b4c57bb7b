"""What must work with the wheel and its extra `torch`; run by check_wheel.py in a new folder."""

import numpy as np
import torch
from torch import nn

from snapsure import Predictor, Recorder, score

torch.manual_seed(0)
x = torch.randn(400, 8)
y = (x @ torch.randn(8, 3) + torch.randn(400, 3)).argmax(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
recorder = Recorder("snapshots")
for epoch in range(1, 7):
    for rows in torch.split(torch.randperm(200), 20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    recorder.record(model, epoch)
table = score(model, "snapshots", (x[200:], y[200:]), out="scores", progress=False)
assert table.kappa("softmax").shape == (6, 200)
predictor = Predictor.fit(model, "snapshots", table)
predictor.save("predictor")
answer = predictor(x[:5])
again = Predictor.load("predictor", model)(x[:5])
assert all(np.array_equal(*pair) for pair in zip(answer, again, strict=True))
