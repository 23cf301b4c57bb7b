"""What the callbacks of all frameworks share."""

from torch import nn

from snapsure.integrations._recording import Recording


def test_the_size_of_the_store_is_printed_when_a_training_ends(tmp_path, capsys):
    recording = Recording(tmp_path / "run")
    for epoch in (1, 2):
        recording.store.save(nn.Linear(500, 500, bias=False), epoch)
    recording._end()
    # Two times a million bytes of weights, and what safetensors says about them.
    assert f"{tmp_path / 'run'}: 2 snapshots, 2.0 MB" in capsys.readouterr().err
