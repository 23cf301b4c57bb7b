"""Lightning's Fabric: any device, precision and number of processes."""

from typing import TYPE_CHECKING, Any

from snapsure.errors import InvalidInput

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def launched(accelerator: str = "auto", devices: int = 1, precision: Any = "32-true") -> "Fabric":
    """It, ready: with several devices the command runs once for each."""
    try:
        from lightning.fabric import Fabric
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "training needs Lightning, which is not installed: pip install 'snapsure[lightning]'",
            name=error.name,
        ) from None
    try:
        ready = Fabric(accelerator=accelerator, devices=devices, precision=precision)
    except (ValueError, RuntimeError) as error:
        raise InvalidInput(
            f"--accelerator {accelerator}, --devices {devices} and --precision {precision} must be "
            f"ones that Lightning Fabric has here, got its refusal ({error}): choose others"
        ) from None
    ready.launch()
    return ready
