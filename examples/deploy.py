"""From a score table to answers with a promised risk, after `train_and_record`.

    python -m examples.deploy

Leaves `predictor`, which `examples/service.py` serves.
"""

from examples.train_and_record import network, points
from snapsure import Predictor, ScoreTable


def main() -> None:
    """Choose, promise, save, load, answer."""
    table = ScoreTable.open("runs/scores")
    predictor = Predictor.fit(
        "examples.train_and_record:network", "runs/first", table, risk=0.05, passes=4
    )
    print(predictor.reason)
    predictor.save("predictor")

    predictor = Predictor.load("predictor", network())
    x, y = points(2000, seed=2)
    answer = predictor(x)
    wrong = (answer.label != y.numpy())[answer.accepted].mean()
    print(f"accepted {answer.accepted.mean():.0%}, of these {wrong:.1%} wrong; promised 5 %")


if __name__ == "__main__":
    main()
