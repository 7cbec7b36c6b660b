"""Convert a checkpoint of TUPE's reference code to a folder that transformers loads, without unpickling anything.

Shows: `convert_tupe` and its inverse, `to_reference_names`. The script first writes a small checkpoint with random
weights and the reference code's names: the published one is large. `wordorder convert tupe model.pt FOLDER` does the
same for your file.
Prints: the number of mapped weights, the model class, and the largest difference of the logits.

python examples/convert_a_checkpoint.py
"""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForMaskedLM

from wordorder.models import build_config, build_model
from wordorder.papers.tupe import convert_tupe, to_reference_names


def checkpoint(folder: Path) -> tuple[torch.nn.Module, Path]:
    """Return a small TUPE-R model, and the file that the reference code would have saved."""
    sizes = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = build_config(
        "encoder",
        **sizes,
        intermediate_size=64,
        max_position_embeddings=64,
        encoding="tupe-r",
        encoding_options={"cls": "position-0", "reset": "reference-code"},
        norm_placement="post",
        layer_norm_eps=1e-5,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    model = build_model(config, "masked-lm", seed=0).eval()
    file = folder / "model.safetensors"
    save_file({name: weight.contiguous().clone() for name, weight in to_reference_names(model).items()}, file)
    return model, file


def main() -> None:
    """Make a checkpoint, convert it, and compare."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        original, file = checkpoint(folder)
        report = convert_tupe(file, folder / "converted", config={"encoder_attention_heads": 4})
        print(f"{len(report.mapped)} weights mapped, {report.parameters:,} parameters, numbers {report.dtype}")
        print(f"loads as {', '.join(report.architectures)}")
        converted = AutoModelForMaskedLM.from_pretrained(folder / "converted").eval()
        tokens = torch.randint(5, 60, (3, 20), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            apart = (original(tokens).logits - converted(tokens).logits).abs().max().item()
    print(f"logits at most {apart:.1e} apart")


if __name__ == "__main__":
    main()
