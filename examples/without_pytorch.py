"""Probabilities of any framework, epoch by epoch, and NumPy alone.

pip install snapsure
python -m examples.without_pytorch
"""

import numpy as np

from snapsure import AES, ScoreTable, Threshold, bootstrap_difference, eaurc


def main() -> None:
    """An array (snapshots, points, classes) is all it takes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2000)
    logits = rng.normal(size=(20, 2000, 3)) + rng.normal(size=(2000, 3))
    logits[:, np.arange(2000), y] += 1.5
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)

    table = ScoreTable.from_probabilities(probabilities, y)
    aes, final = AES().confidence(table), table.kappa("softmax")[-1]
    print("E-AURC, AES - final:", bootstrap_difference(eaurc, aes, final, table.errors))
    print(Threshold.at_risk(aes, table.errors, risk=0.15))


if __name__ == "__main__":
    main()
