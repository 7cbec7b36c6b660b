"""Convert a checkpoint of TUPE's reference code to a folder that transformers loads, without unpickling anything.

Shows: `convert_tupe`. The script first writes a small checkpoint with random weights and the reference code's names:
the published one is large. `wordorder convert tupe model.pt FOLDER` does the same for your file.
Prints: the number of mapped weights, the model class, and whether every number arrived.

python examples/convert_a_checkpoint.py
"""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForMaskedLM

from wordorder.papers.tupe import convert_tupe

WIDTH, INNER, VOCABULARY, POSITIONS, HEADS = 32, 64, 60, 64, 4


def checkpoint() -> dict[str, torch.Tensor]:
    """Return the random weights of a small TUPE-R model under the reference code's names."""
    square, norm = (WIDTH, WIDTH), (WIDTH,)
    layer = {"self_attn.in_proj_": (3 * WIDTH, WIDTH), "self_attn.out_proj.": square, "self_attn_layer_norm.": norm}
    layer |= {"fc1.": (INNER, WIDTH), "fc2.": (WIDTH, INNER), "final_layer_norm.": norm}
    modules = {"pos_ln.": norm, "pos_q_linear.": square, "pos_k_linear.": square, "emb_layer_norm.": norm}
    modules |= {f"layers.{number}.{name}": shape for number in (0, 1) for name, shape in layer.items()}
    modules = {f"sentence_encoder.{name}": shape for name, shape in modules.items()}
    modules |= {"lm_head.": (VOCABULARY, WIDTH), "lm_head.dense.": square, "lm_head.layer_norm.": norm}
    shapes = {f"{name}weight": shape for name, shape in modules.items()}
    shapes |= {f"{name}bias": shape[:1] for name, shape in modules.items()}
    shapes["sentence_encoder.embed_tokens.weight"] = (VOCABULARY, WIDTH)
    shapes["sentence_encoder.pos.weight"] = (POSITIONS + 1, WIDTH)
    shapes["sentence_encoder.relative_attention_bias.weight"] = (33, HEADS)
    generator = torch.Generator().manual_seed(0)
    return {f"decoder.{name}": torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def main() -> None:
    """Make a checkpoint, convert it, and compare."""
    weights = checkpoint()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_file(weights, folder / "model.safetensors")
        report = convert_tupe(folder / "model.safetensors", folder / "converted", config={"dropout": 0.1})
        print(f"{len(report.mapped)} weights mapped, {report.parameters:,} parameters, numbers {report.dtype}")
        print(f"loads as {', '.join(report.architectures)}")
        converted = AutoModelForMaskedLM.from_pretrained(folder / "converted").state_dict()
    arrived = all(
        torch.cat([converted[name] for name in names]).equal(weights[f"decoder.{reference}"])
        for reference, names in report.mapped.items()
    )
    print(f"every number arrived: {arrived}")


if __name__ == "__main__":
    main()
