"""Keras 3 on PyTorch, as it is."""

import copy
from zipfile import ZipFile

import keras
import numpy as np
import pytest
import torch
from torch import nn

from snapsure import Evenly, MCDropout, NNDistance, Report, SnapshotStore, SoftmaxResponse, score
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.integrations.keras import Classifier, SnapshotCallback
from tests.support import processes
from tests.support.refusals import refuses

pytestmark = [
    pytest.mark.slow,
    # Keras hands its own arrays to a NumPy that has become strict about a keyword.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning"),
]

layers = keras.layers


def network(last="softmax"):
    keras.utils.set_random_seed(0)
    head = {
        "softmax": [layers.Dense(10, activation="softmax")],
        "softmax layer": [layers.Dense(10), layers.Softmax()],
        "activation layer": [layers.Dense(10), layers.Activation("softmax")],
        "logits": [layers.Dense(10)],
    }[last]
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(16, activation="relu"),
            *head,
        ]
    )


def compiled():
    model = network()
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def channels_last(part):
    images, labels = part
    return images.movedim(1, -1).numpy(), labels.numpy()


@pytest.fixture(scope="module")
def trained(digits, tmp_path_factory):
    """A training with our snapshots, and Keras's own checkpoints beside them."""
    folder = tmp_path_factory.mktemp("keras")
    model, callback = compiled(), SnapshotCallback(folder / "store")
    theirs = keras.callbacks.ModelCheckpoint(
        folder / "theirs" / "{epoch:02d}.weights.h5", save_weights_only=True
    )
    model.fit(*channels_last(digits.train), epochs=4, verbose=0, callbacks=[callback, theirs])
    return model, callback.store, folder / "theirs"


def test_snapshots_are_keras_own_checkpoints(trained):
    _, store, theirs = trained
    adopted = SnapshotStore.adopt(theirs)
    assert store.epochs == adopted.epochs == [1, 2, 3, 4]
    for epoch in store:
        model = Classifier(network())
        adopted.load_into(model, epoch)
        ours = store.load(epoch)
        assert ours.keys() == model.state_dict().keys()
        assert all(torch.equal(ours[name], t) for name, t in model.state_dict().items())
    assert sorted(adopted.load(1))[:2] == [
        "layers/batch_normalization/vars/0",
        "layers/batch_normalization/vars/1",
    ]
    assert not torch.equal(store.load(1)["weights.000_kernel"], store.load(4)["weights.000_kernel"])


def test_the_whole_way_to_a_report(trained, digits, tmp_path):
    model, store, theirs = trained
    test = channels_last(digits.test)
    neighbours = NNDistance(channels_last(digits.train), k=50, layer="embedding")
    classifier = Classifier(network())
    before = copy.deepcopy(classifier.state_dict())
    table = score(classifier, store, test, [SoftmaxResponse(), neighbours], progress=False)
    probabilities = model.predict(test[0], verbose=0)
    assert np.array_equal(table.y_hat, probabilities.argmax(axis=1))
    assert np.allclose(table.kappa("softmax")[-1], probabilities.max(axis=1), rtol=0, atol=1e-6)
    assert np.array_equal(table.errors, probabilities.argmax(axis=1) != test[1])
    again = score(classifier, theirs, test, SoftmaxResponse(), progress=False)
    assert np.array_equal(again.kappa("softmax"), table.kappa("softmax"))
    assert all(torch.equal(t, before[name]) for name, t in classifier.state_dict().items())
    page = Report(table, title="digits by Keras").save(tmp_path / "report.html").read_text()
    assert "digits by Keras" in page


@pytest.fixture(scope="module")
def whole(digits, tmp_path_factory):
    """Models as Keras saves them whole, with what trained them, and weights alone beside."""
    folder = tmp_path_factory.mktemp("whole")
    names = {"models": "{epoch:02d}-{loss:.2f}.keras", "weights": "{epoch:02d}.weights.h5"}
    compiled().fit(
        *channels_last(digits.train),
        epochs=3,
        verbose=0,
        callbacks=[
            keras.callbacks.ModelCheckpoint(folder / kind / name, save_weights_only=i == 1)
            for i, (kind, name) in enumerate(names.items())
        ],
    )
    return folder


def test_whole_models_are_adopted_for_their_weights(whole, digits):
    models, weights = (SnapshotStore.adopt(whole / kind) for kind in ("models", "weights"))
    assert models.epochs == weights.epochs == [1, 2, 3]
    for epoch in models:
        ours, theirs = models.load(epoch), weights.load(epoch)
        assert ours.keys() == theirs.keys()  # and nothing of the optimizer's
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    test = channels_last(digits.test)
    tables = [
        score(Classifier(network()), store, test, SoftmaxResponse(), progress=False)
        for store in (models, weights)
    ]
    assert np.array_equal(*(table.kappa("softmax") for table in tables))
    assert not np.array_equal(*tables[0].kappa("softmax")[1:])


def test_nothing_but_the_weights_of_a_whole_model_is_read(whole, tmp_path):
    """What describes the model could run code; here it is no JSON at all."""
    source = next((whole / "models").glob("03-*"))
    with ZipFile(source) as old, ZipFile(tmp_path / "epoch-3.keras", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) if name.endswith(".h5") else b"{{ no JSON")
    one, model = SnapshotStore.adopt(tmp_path), Classifier(network())
    one.load_into(model, 3)
    expected = Classifier(network())
    SnapshotStore.adopt(whole / "weights").load_into(expected, 3)
    state = expected.state_dict()
    assert all(torch.equal(state[name], t) for name, t in model.state_dict().items())


def test_a_whole_model_that_is_none(whole, tmp_path):
    source = next((whole / "models").glob("03-*"))
    path = tmp_path / "epoch-3.keras"
    with ZipFile(path, "w") as new:
        new.writestr("config.json", "{}")
    for content in (path.read_bytes(), source.read_bytes()[:5000], b"no zip"):
        path.write_bytes(content)
        with refuses(CorruptFile, f"{path} must be a whole Keras file"):
            SnapshotStore.adopt(tmp_path).load(3)


@pytest.mark.parametrize("last", ["softmax", "softmax layer", "activation layer", "logits"])
def test_logits_whatever_the_last_layer(last):
    model = network(last)
    model.layers[5].kernel.assign(model.layers[5].kernel * 200)  # so that float32 says exactly 1
    images = np.random.default_rng(0).random((50, 8, 8, 1), dtype=np.float32)
    logits = Classifier(model)(torch.from_numpy(images)).detach()
    said = torch.tensor(keras.ops.convert_to_numpy(model(images)))
    probabilities = said.softmax(dim=1) if last == "logits" else said
    assert torch.allclose(logits.softmax(dim=1), probabilities, atol=1e-6)
    tied = probabilities.amax(dim=1) == 1
    best, second = logits[tied].topk(2, dim=1).values.unbind(dim=1)
    assert len((best - second).unique()) == tied.sum() > 2  # probabilities could not rank these


def test_one_sigmoid_unit_is_two_classes():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid", use_bias=False)(inputs))
    x = torch.randn(20, 4)
    p = model(x).detach()[:, 0]
    both = Classifier(model)(x).softmax(dim=1).detach()
    assert torch.allclose(both[:, 1], p, atol=1e-6)
    assert torch.allclose(both[:, 0], 1 - p, atol=1e-6)


def test_a_head_that_is_a_model_itself():
    keras.utils.set_random_seed(0)
    head = keras.Sequential([layers.Input((8,)), layers.Dense(1, activation="sigmoid")])
    model = keras.Sequential([layers.Input((4,)), layers.Dense(8, activation="relu"), head])
    x = torch.randn(20, 4)
    both = Classifier(model)(x).softmax(dim=1).detach()
    assert torch.allclose(both[:, 1], model(x).detach()[:, 0], atol=1e-6)


def test_several_inputs_by_name_and_by_place():
    keras.utils.set_random_seed(0)
    left, right = keras.Input((3,), name="left"), keras.Input((2,), name="right")
    joined = layers.Concatenate()([left, right])
    a, b = torch.randn(5, 3), torch.randn(5, 2)
    by_place = keras.Model([left, right], layers.Dense(4, activation="softmax")(joined))
    by_name = keras.Model(
        {"left": left, "right": right}, layers.Dense(4, activation="softmax")(joined)
    )
    for model, given in ((by_place, [a, b]), (by_name, {"left": a, "right": b})):
        network = Classifier(model)
        logits = network(**given) if isinstance(given, dict) else network(*given)
        assert torch.allclose(logits.softmax(dim=1), model(given), atol=1e-6)


def test_a_model_of_ones_own_gives_logits_itself():
    class Own(keras.Model):
        def __init__(self, **options):
            super().__init__(**options)
            self.dense = layers.Dense(3)

        def call(self, x):
            return self.dense(x)

    model = Own()
    with refuses(InvalidInput, "`model`", "got Own", "Input"):
        Classifier(model)
    x = torch.randn(5, 4)
    expected = model(x)
    assert torch.equal(Classifier(model)(x), expected)
    with refuses(InvalidInput, "`model`", "copy", "register_keras_serializable"):
        copy.deepcopy(Classifier(model))
    registered = keras.saving.register_keras_serializable("test")(Own)()
    registered(x)
    assert torch.equal(copy.deepcopy(Classifier(registered))(x), Classifier(registered)(x))
    assert "embedding" not in dict(Classifier(model).named_modules())


def test_a_schedule_and_going_on(digits, tmp_path, capsys):
    data = channels_last(digits.train)
    model, callback = compiled(), SnapshotCallback(tmp_path / "store", Evenly(total=4, k=2))
    model.fit(*data, epochs=4, verbose=0, batch_size=500, callbacks=[callback])
    assert callback.store.epochs == [1, 4]
    assert f"{callback.store.path}: 2 snapshots" in capsys.readouterr().err
    more = SnapshotCallback(tmp_path / "store")
    model.fit(*data, epochs=4, initial_epoch=2, verbose=0, batch_size=500, callbacks=[more])
    assert more.store.epochs == [1, 3, 4]
    with refuses(InvalidInput, "`store`", f"got 3 snapshots in {tmp_path / 'store'}"):
        model.fit(*data, epochs=1, verbose=0, batch_size=500, callbacks=[more])


def test_what_it_cannot_do_is_said(trained, digits, tmp_path):
    model, store, theirs = trained
    test = channels_last(digits.test)
    with refuses(InvalidInput, "`model`", "got no nn.Dropout"):
        score(Classifier(network()), store, test, MCDropout(), progress=False)
    with refuses(InvalidInput, "`model`", "got Linear", "keras.Classifier"):
        score(nn.Linear(3, 2), theirs, test, SoftmaxResponse(), progress=False)
    with refuses(InvalidInput, "`model`", "got probabilities (each row sums to 1)"):
        score(model, theirs, test, SoftmaxResponse(), progress=False)
    other = Classifier(
        keras.Sequential([layers.Input((8, 8, 1)), layers.Flatten(), layers.Dense(10)])
    )
    with refuses(InvalidInput, f"epoch 4 ({theirs / '04.weights.h5'})", "architecture"):
        score(other, theirs, test, SoftmaxResponse(), progress=False)
    two = keras.Input((4,))
    with refuses(InvalidInput, "`model`", "got 2"):
        Classifier(keras.Model(two, [two, layers.Dense(2)(two)]))
    unclear = Classifier(keras.Sequential([two, layers.Dense(1), layers.LeakyReLU()]))
    with refuses(InvalidInput, "`model`", "got another layer there"):
        unclear(torch.zeros(3, 4))


def test_another_backend_is_refused():
    """Of Keras's backends only PyTorch is installed; only the name of another is put in."""
    code = """
import keras
keras.backend.backend = lambda: "jax"
from snapsure.integrations.keras import SnapshotCallback
try:
    SnapshotCallback("store")
except ValueError as error:
    print(error)
"""
    run = processes.run(code)
    assert "got the backend 'jax'" in run.stdout
    assert "KERAS_BACKEND=torch" in run.stdout
