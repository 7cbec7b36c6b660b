"""The recipe's own FSDP2, which accelerate's plugin does on GPUs only."""

import json

import pytest
import tiny_recipes
import torch
from safetensors.torch import load_file
from test_launchers import launch_lines, start

pytestmark = pytest.mark.timeout(600)


@pytest.mark.gpu
def test_a_recipe_with_fsdp_trains_as_with_ddp_and_either_goes_on_where_the_other_was(corpus, tmp_path):
    """Needs two GPUs: NCCL gives each process one of its own."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs: NCCL gives each process one of its own")
    recipe = tmp_path / "tiny.toml"
    text = tiny_recipes.RECIPE.format(source=f"{corpus}/*/*.txt").replace('device = "cpu"\n', "")
    recipe.write_text(text + "batch_size = 8\nmicro_batch_size = 2\n")
    results = {}
    for name, fsdp in (("ddp", "off"), ("fsdp", "shard")):
        running = start(
            launch_lines()["torchrun"], recipe, tmp_path / name, tmp_path, "--json", "--set", f"training.fsdp={fsdp}"
        )
        out, said = running.communicate(timeout=300)
        assert running.returncode == 0, said
        results[name] = json.loads(out)
    assert results["fsdp"]["test"]["loss"] == pytest.approx(results["ddp"]["test"]["loss"], rel=1e-4)
    ours, theirs = (load_file(tmp_path / name / "checkpoint-4/model.safetensors") for name in ("fsdp", "ddp"))
    assert ours.keys() == theirs.keys()
    assert tiny_recipes.largest_difference(ours, theirs) < 1e-3
    folder = tmp_path / "fsdp"
    (folder / "metrics.json").unlink()
    (folder / "checkpoint-4").rename(folder / "first")
    running = start(launch_lines()["torchrun"], recipe, folder, tmp_path, "--resume", "--set", f"training.fsdp={fsdp}")
    _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said
    assert tiny_recipes.largest_difference(load_file(folder / "checkpoint-4/model.safetensors"), ours) < 1e-3
