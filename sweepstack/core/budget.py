"""What a sweep may cost, and what work is to come, as the program tells the provider."""

from typing import Self

from pydantic import Field, model_validator

from sweepstack.core.records import Record

NOTIFY = (0.8, 1.0)


class Budget(Record):
    """What a sweep may cost: money, hours, or both."""

    usd: float | None = Field(default=None, gt=0)
    """USD in all"""
    hours: float | None = Field(default=None, gt=0)
    """hours of running boxes, added up"""
    notify: tuple[float, ...] = NOTIFY
    """fractions at which the webhook is told, once each"""
    webhook: str | None = None
    """the name of the environment variable that holds its URL, never the URL"""
    stop: bool = False
    """true: past the budget, `sweepctl tend` stops boxes where that kills nothing unsaved"""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.usd is None and self.hours is None:
            raise ValueError("a budget names usd, hours, or both")
        return self

    def hours_each(self, boxes: int) -> float | None:
        """The hours that each of so many boxes has, if they share them evenly."""
        return None if self.hours is None else self.hours / max(boxes, 1)

    def text(self) -> str:
        """`$60.00`, `30 box-hours`, or both."""
        parts = [] if self.usd is None else [f"${self.usd:.2f}"]
        return " and ".join(parts + ([] if self.hours is None else [f"{self.hours:g} box-hours"]))


class Outlook(Record):
    """What the program knows of the work to come."""

    boxes: int = Field(ge=0)
    """boxes that are wanted running"""
    price_per_hour: float | None = None
    """USD per hour of each"""
    slots: int = Field(ge=0)
    """cells at once on all of these boxes, which may differ"""
    cells: int = Field(ge=0)
    """cells in all"""
    dry_run: bool = True
    """true: this is a preview, which sends no alert anything"""
