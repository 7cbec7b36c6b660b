"""The model card of a converted checkpoint: where it comes from, what was changed, and that nothing was scored."""

from pathlib import Path

from wordorder.conversion.report import ConversionReport
from wordorder.models.hub.model_card import CardFacts, code, plain, write_card


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
