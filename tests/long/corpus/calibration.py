"""How often each round's first, unseen score was right for certain and for likely diagnoses: `python calibration.py`.

The interval is Wilson's, 95 %.
"""

from __future__ import annotations

import csv
from math import sqrt
from pathlib import Path

Z = 1.959964
LATEST = 9
"""The first round that was scored by an engine of the latest kind."""
LEVELS = ("sure", "likely")


def wilson(right: int, told: int) -> tuple[float, float]:
    """Return the confidence interval of the share."""
    if not told:
        return 0.0, 1.0
    share, of = right / told, 1 + Z * Z / told
    middle, half = (share + Z * Z / (2 * told)) / of, Z * sqrt(share * (1 - share) / told + Z * Z / (4 * told * told)) / of
    return middle - half, middle + half


def line(name: str, rows: list[dict[str, str]]) -> str:
    """Return one line of the table."""
    texts = sum(int(row["texts"]) for row in rows)
    cells = [f"{name:<16}{texts:>6} texts"]
    for level in LEVELS:
        right, told = (sum(int(row[column]) for row in rows) for column in (f"{level}_right", level))
        low, high = wilson(right, told)
        cells.append(f"{level} {right:>3} of {told:>3}  {100 * right / max(told, 1):5.1f} % [{100 * low:4.1f}, {100 * high:5.1f}]")
    false = "/".join(str(sum(int(row[column]) for row in rows)) for column in ("false_success", "false_failure"))
    return "   ".join((*cells, f"false success/failure {false}"))


def main() -> None:
    """Print the table."""
    with (Path(__file__).parent / "first_scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    published = [row for row in rows if row["round"] != "made"]
    for row in rows:
        print(line(row["round"], [row]))
    print(line("published", published))
    print(line(f"rounds from {LATEST}", [row for row in published if int(row["round"]) >= LATEST]))
    print(line("all", rows))


if __name__ == "__main__":
    main()
