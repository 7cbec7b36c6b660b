"""Options that earlier versions had, and what to write instead."""

_SCALE = "docs/scaling.md says what decides the speed on many GPUs"

REMOVED = {
    "cost": {
        "--gpu": "write --peak-tflops P --utilisation U, P from the GPU's data sheet",
        "--strategy": "write --sharding ddp or --sharding fsdp",
        "--gpus-per-node": f"communication is no longer predicted; leave it out, {_SCALE}",
        "--overlap": f"communication is no longer predicted; leave it out, {_SCALE}",
        "--no-overlap": f"communication is no longer predicted; leave it out, {_SCALE}",
        "--precision": "write --set training.bf16=true, or =false for float32",
        "--checkpointing": "write --set training.gradient_checkpointing=true",
        "--no-checkpointing": "write --set training.gradient_checkpointing=false",
        "--global-batch": "write --set training.per_device_train_batch_size=B, the rows of each GPU",
        "--check": "measure by wordorder train RECIPE --set training.max_steps=20, which prints tokens per second",
    },
}
"""Option -> remedy, by command."""


def remedy(error: object) -> str | None:
    """Return what to write instead of an option that is gone; None for every other error of the command line.

    Args:
        error: of the parser, whose classes recent versions of typer keep under a private name.
    """
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    command = getattr(getattr(context, "command", None), "name", None)
    said = REMOVED.get(str(command), {}).get(str(option))
    return None if said is None else f"{option}: is gone; {said}"
