"""The Hugging Face folder of a converted model: configuration, weights, tokeniser, and the report beside them."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from wordorder.conversion.dictionary import Dictionary
from wordorder.conversion.reference_args import ReferenceArgs
from wordorder.conversion.reference_names import Form
from wordorder.conversion.report import ConversionReport
from wordorder.errors import RunFailed
from wordorder.models.hub.model_card import CardFacts, code, plain, write_card

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedTokenizerFast


def config_fields(
    form: Form, sizes: Mapping[str, int], settings: ReferenceArgs, vocabulary: Dictionary | None, *, tied: bool
) -> dict[str, Any]:
    """Return the configuration, with everything written out that the reference code fixes: our defaults may change.

    Args:
        sizes: by the letters of `reference_names`.
        vocabulary: knows the id of the mask, which is the last one otherwise.
    """
    options = {"cls": "position-0", "theta": "table-rows", "projection_bias": True}
    if form.relative:
        options |= {"reset": "reference-code", "buckets": sizes["R"] - 1, "max_distance": 128}
    head = {"num_labels": sizes["K"], "classifier_dense": form.head_dense} if form.head is not None else {}
    return {
        "vocab_size": sizes["V"],
        "hidden_size": sizes["C"],
        "num_hidden_layers": form.layers,
        "num_attention_heads": settings.heads,
        "intermediate_size": sizes["F"],
        "max_position_embeddings": sizes["P"] - 1,
        "hidden_act": settings.activation,
        "head_act": settings.activation,
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.attention_dropout,
        "classifier_dropout": settings.pooler_dropout,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": tied,
        "bos_token_id": 0,
        "cls_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "sep_token_id": 2,
        "mask_token_id": sizes["V"] - 1 if vocabulary is None else vocabulary.ids["<mask>"],
        "encoding": "tupe-r" if form.relative else "tupe-a",
        "encoding_options": options,
        "norm": "layer",
        "norm_placement": "pre" if form.final_norm else "post",
        "embedding_norm": form.embedding_norm,
        **head,
    }


def architectures_of(form: Form) -> tuple[str, ...]:
    """Return the classes that the weights serve, the classifier first: it was trained last."""
    classifier = ("WordOrderEncoderForSequenceClassification",) if form.head is not None else ()
    return (*classifier, *(("WordOrderEncoderForMaskedLM",) if form.lm_head else ()))


def write_folder(
    folder: Path,
    report: ConversionReport,
    tensors: "dict[str, Tensor]",
    tokenizer: "PreTrainedTokenizerFast | None",
    *,
    config_class: str = "WordOrderEncoderConfig",
) -> None:
    """Fill a folder that `AutoModelForMaskedLM` and the like load.

    Raises:
        RunFailed: a file could not be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]

    config = _config(report, config_class)
    _check_names(config, report.architectures, tensors)
    try:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(folder)
        # safetensors gives its files to their owner alone; the folder's are for whom the umask says
        (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)
        if tokenizer is not None:
            cast("Any", tokenizer).save_pretrained(folder)
        text = json.dumps(asdict(report), indent=2, ensure_ascii=False)
        (folder / "conversion.json").write_text(f"{text}\n", encoding="utf-8")
        write_conversion_card(folder, report)
    except (OSError, SafetensorError) as error:
        raise RunFailed(f"the converted model could not be written: {error}") from error


def _config(report: ConversionReport, config_class: str) -> Any:
    import torch

    from wordorder import models

    config = getattr(models, config_class)(**report.config)
    config.architectures = list(report.architectures)
    config.dtype = getattr(torch, report.dtype)
    if report.config.get("num_labels") == 1:
        config.problem_type = "regression"
    return config


def _check_names(config: "PreTrainedConfig", architectures: tuple[str, ...], tensors: "Mapping[str, Tensor]") -> None:
    """Check that the models find each weight under its name and in its shape.

    Anything else is a bug of this package.
    """
    import torch

    from wordorder import models

    shapes: dict[str, tuple[int, ...]] = {}
    for name in architectures:
        with torch.device("meta"):
            model = getattr(models, name)(config)
        tied = model.get_expanded_tied_weights_keys()
        shapes |= {name: tuple(weight.shape) for name, weight in model.state_dict().items() if name not in tied}
    assert shapes == {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def write_conversion_card(folder: Path, report: ConversionReport) -> None:
    """Write README.md beside a converted model.

    Raises:
        OSError: it cannot be written.
    """
    lines = [
        f"- read from {code(report.checkpoint)} ({plain(report.layout)}) without running anything in it",
        f"- {report.parameters:,} numbers, {report.dtype}; {len(report.mapped)} weights were mapped,"
        f" {len(report.ignored)} left out; conversion.json lists them",
        f"- tokeniser: {'written' if report.tokenizer else 'not written'}",
        f"- loads as {', '.join(code(name) for name in report.architectures)}",
        *(f"- {plain(note)}" for note in report.notes),
    ]
    facts = CardFacts(
        title=f"{_title(report)}, converted",
        summary=f"The weights of {code(report.checkpoint)}, converted by `wordorder convert`; they were not trained"
        " here, and their licence, data and scores are those of whoever trained them.",
        sections=[("Where it comes from", "\n".join(lines))],
        untested=[
            "Any score: the conversion measures none. Compare with the checkpoint's own on data that you know.",
            "What it has learned of people and groups of people, and any harm that its answers may do.",
        ],
    )
    write_card(folder, facts)


def _title(report: ConversionReport) -> str:
    """Return the checkpoint's name without its ending."""
    return Path(report.checkpoint).stem or "checkpoint"
