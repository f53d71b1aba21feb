"""The words that say what a sweep varies, in Hydra's language: `lr=0.1,0.01 wd=range(0,0.1,0.05)`. Pure code.

    axes = parse(["lr=0.1,0.01", "batch=choice(16,32)", "wd=interval(0,0.1)", "lr=tag(log,interval(1e-5,1e-1))"])

    a,b,c                one after the other; quotes and brackets keep commas together: 'a,b'  [1,2]  {x:1,y:2}
    choice(a,b,c)        the same
    range(5)  range(start,stop,step)     stop is left out, as in Python and Hydra
    interval(low,high)   any number between them; for random sweeps. int(interval(1,9)): a whole one
    tag(log,interval(low,high))          drawn evenly by its logarithm

Values stay the texts that were typed: 0.10 is handed on as 0.10. Every BadRequest names the word and the column in it.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import NoReturn

from ebb.client.errors import BadRequest

MOST_VALUES = 1000  # of one key: a range whose step was mistyped is no sweep

_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w./@-]*")
_CALL = re.compile(r"([A-Za-z_]\w*)\(")
_PLAIN = re.compile(r"[^,()\[\]{}'\"\s=]+(?:=[^,()\[\]{}'\"\s]*)?")
_PAIRS = {"[": "]", "{": "}", "(": ")"}
_FUNCTIONS = "choice(a,b), range(start,stop,step), interval(low,high), int(interval(low,high)), tag(log,interval(low,high))"


@dataclass(frozen=True, kw_only=True)
class Values:
    """A key that takes one of some values."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A key that takes any number from `low` to `high`."""

    key: str
    low: float
    high: float
    log: bool = False  # even by logarithm
    whole: bool = False


Axis = Values | Interval


def parse(words: Iterable[str]) -> tuple[Axis, ...]:
    """One axis for each word. Raises BadRequest."""
    axes: list[Axis] = []
    for word in words:
        axis = _Reader(word).axis()
        if any(axis.key == other.key for other in axes):
            raise BadRequest(f"override {word!r}: {axis.key} is given twice. Put all its values into one, as in {axis.key}=a,b.")
        axes.append(axis)
    if not axes:
        raise BadRequest("nothing to vary: say what, as in `ebb sweep lr=0.1,0.01 wd=range(0,0.1,0.05) -- python train.py`.")
    return tuple(axes)


def is_override(word: str) -> bool:
    """Return whether a word of the command line is KEY=...; the first one that is not begins the program."""
    key, equals, _ = word.partition("=")
    return bool(equals and _KEY.fullmatch(key))


class _Reader:
    """One word, read from left to right; `at` is where."""

    def __init__(self, word: str) -> None:
        self._word, self._at = word, 0

    def axis(self) -> Axis:
        key = _KEY.match(self._word)
        if not key or self._word[key.end() : key.end() + 1] != "=":
            self._fail("a name and '=' were expected: write KEY=VALUES, as in lr=0.1,0.01", key.end() if key else 0)
        self._at = key.end() + 1
        found = self._elements(key[0], "")
        intervals = [item for item in found if isinstance(item, Interval)]
        if intervals and len(found) > 1:
            self._fail("an interval cannot stand beside other values: give it alone, or list values only", key.end() + 1)
        return intervals[0] if intervals else self._values(key[0], [text for text in found if isinstance(text, str)])

    def _values(self, key: str, texts: list[str]) -> Values:
        twice = next((text for index, text in enumerate(texts) if text in texts[:index]), None)
        if twice is not None:
            self._fail(f"the value {twice!r} is there twice: leave one out", len(key) + 1)
        return Values(key=key, values=tuple(texts))

    def _elements(self, key: str, closing: str) -> list[str | Interval]:
        """Elements with commas between them up to `closing`, or to the end of the word."""
        found: list[str | Interval] = []
        while True:
            found += self._element(key)
            self._skip()
            if self._peek() == closing:
                self._at += len(closing)
                return found
            if self._peek() != ",":
                self._fail(f"{_named(self._peek())} was not expected: put ',' between values, and quotes around odd ones")
            self._at += 1

    def _element(self, key: str) -> list[str | Interval]:
        self._skip()
        if call := _CALL.match(self._word, self._at):
            return self._call(key, call[1], call.end())
        return [self._text()]

    def _text(self) -> str:
        """A quoted, bracketed or plain value."""
        letter = self._peek()
        if letter in ("'", '"') and letter:
            return self._quoted(letter)
        if letter in ("[", "{") and letter:
            return self._bracketed()
        plain = _PLAIN.match(self._word, self._at)
        if not plain:
            self._fail(f"a value is missing before {_named(letter)}: write values as in lr=0.1,0.01")
        self._at = plain.end()
        return plain[0]

    def _quoted(self, quote: str) -> str:
        end = self._word.find(quote, self._at + 1)
        if end < 0:
            self._fail(f"the quote {quote} is not closed: put another one at its end")
        text, self._at = self._word[self._at + 1 : end], end + 1
        return text

    def _bracketed(self) -> str:
        """As it stands, to its closing bracket."""
        start, waiting = self._at, list[str]()
        while self._at < len(self._word):
            letter = self._word[self._at]
            self._at += 1
            if letter in _PAIRS:
                waiting.append(_PAIRS[letter])
            elif waiting and letter == waiting[-1]:
                waiting.pop()
                if not waiting:
                    return self._word[start : self._at]
        self._fail(f"the bracket {self._word[start]!r} is not closed: put {_PAIRS[self._word[start]]!r} at its end", start)

    def _call(self, key: str, name: str, inside: int) -> list[str | Interval]:
        start, self._at = self._at, inside
        if name == "choice":
            found = self._elements(key, ")")
            if any(isinstance(item, Interval) for item in found):
                self._fail("choice() takes values only: an interval stands alone", start)
            return found
        if name == "range":
            return [*self._range(start)]
        if name == "interval":
            return [self._interval(key, start)]
        if name in ("tag", "int"):
            return [self._modified(key, name, start)]
        self._fail(f"there is no function {name!r}: use {_FUNCTIONS}; a value with brackets goes into quotes", start)

    def _range(self, start: int) -> list[str]:
        numbers = self._numbers("range(start,stop,step)", start, (1, 2, 3))
        low, stop = (Decimal(0), numbers[0]) if len(numbers) == 1 else numbers[:2]
        step = numbers[2] if len(numbers) == 3 else Decimal(1)
        if not step:
            self._fail("a step of 0 never ends: give another one", start)
        count = max(0, int(((stop - low) / step).to_integral_value("ROUND_CEILING")))
        if not 1 <= count <= MOST_VALUES:
            self._fail(
                f"the range holds {count} values, and may hold 1 to {MOST_VALUES}: its stop is left out, as in Python", start
            )
        return [_number_text(low + index * step) for index in range(count)]

    def _interval(self, key: str, start: int) -> Interval:
        low, high = self._numbers("interval(low,high)", start, (2,))
        if low >= high:
            self._fail(f"{low} is not less than {high}: the smaller number comes first", start)
        return Interval(key=key, low=float(low), high=float(high))

    def _modified(self, key: str, name: str, start: int) -> Interval:
        """tag(log, ...) and int(...) around an interval."""
        if name == "tag":
            self._skip()
            if not self._word.startswith("log", self._at):
                self._fail("tag() takes log here: write tag(log,interval(1e-5,1e-1))")
            self._at += len("log")
            self._expect(",")
        inner = self._element(key)
        self._expect(")")
        found = inner[0]
        if len(inner) != 1 or not isinstance(found, Interval):
            self._fail(f"{name}() takes an interval: write {'tag(log,' if name == 'tag' else 'int('}interval(low,high))", start)
        if name == "int":
            if math.ceil(found.low) > math.floor(found.high):
                self._fail(f"there is no whole number from {found.low:g} to {found.high:g}: widen the interval", start)
            return replace(found, whole=True)
        if found.low <= 0:
            self._fail(f"{found.low:g} has no logarithm: begin above 0", start)
        return replace(found, log=True)

    def _numbers(self, usage: str, start: int, counts: tuple[int, ...]) -> list[Decimal]:
        """Numbers up to the closing bracket; `step=0.1` is taken as Hydra writes it."""
        found: list[Decimal] = []
        while True:
            self._skip()
            at = self._at
            text = self._text()
            try:
                number = Decimal(text.removeprefix("start=").removeprefix("stop=").removeprefix("step="))
            except InvalidOperation:
                self._fail(f"{text!r} is not a number: write {usage}", at)
            if not number.is_finite():
                self._fail(f"{text!r} has no end: write {usage}", at)
            found.append(number)
            self._skip()
            if self._peek() != ",":
                break
            self._at += 1
        self._expect(")")
        if len(found) not in counts:
            self._fail(f"{len(found)} numbers are {'too few' if len(found) < counts[0] else 'too many'}: write {usage}", start)
        return found

    def _expect(self, letter: str) -> None:
        self._skip()
        if self._peek() != letter:
            self._fail(f"{letter!r} was expected before {_named(self._peek())}")
        self._at += 1

    def _skip(self) -> None:
        while self._peek() == " ":
            self._at += 1

    def _peek(self) -> str:
        return self._word[self._at : self._at + 1]

    def _fail(self, what: str, at: int | None = None) -> NoReturn:
        raise BadRequest(f"override {self._word!r}, column {(self._at if at is None else at) + 1}: {what}.")


def _named(letter: str) -> str:
    return repr(letter) if letter else "the end"


def _number_text(number: Decimal) -> str:
    """0.10 as 0.1, and never 1E+1."""
    text = f"{number:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) if number else "0"
