"""An experiment of two simulated networks and their ensemble."""

from snapsure import ScoreTable
from snapsure.paper.archive import Experiment
from tests.support.runs import simulated


def simulate_ensemble():
    table = simulated(9)
    return ScoreTable({"ensemble": table.kappa("softmax")}, table.labels, table.y)


def simulate_network(seed):
    """With both statistics of MC-dropout, as at the paper's scale."""
    table = simulated(seed)
    kappas = {name: table.kappa(name) for name in table.names}
    kappas["mc_dropout_variance"] = 1 - kappas["mc_dropout"] * (1 - kappas["mc_dropout"])
    return ScoreTable(kappas, table.labels, table.y)


def simulate_experiment():
    history = [{"epoch": 12, "training_accuracy": 0.99}]
    about = {"dataset": "cifar100", "scale": "cpu", "networks": [history, history]}
    networks = [simulate_network(0), simulate_network(1)]
    return Experiment(about, networks, {(0, 1): simulate_ensemble()})
