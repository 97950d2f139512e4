"""Each simulator answers as its vendor does: recorded samples, a request and the answer that the vendor's pages show.

`recorded/ADAPTER.txt` holds those of a simulator. Each begins with `== what it shows {...}`, on a platform of its own,
made with these options, whose clock stands still. `#` begins a comment. The lines of a sample are done in their order:

    POST /path {"json": 1}       a request of the customer; `bob:`, `stranger:`, `bearer:` or `box $id:` before it: of
                                 another customer, without a valid key, as a bearer's where that is not the vendor's
                                 way, with the key that is in that box
    => 200 {"id": "$id"}         its answer; `=> none`: the connection ends without one
    +60                          so many seconds pass
    fault KIND POST /path {...}  the next such call goes wrong; the JSON has `times`, `nth` and the fault's parameters
    act NAME {...} -> $id        something happens behind the customer's back, with this result
    set NAME 1                   a setting of the simulator, dots are attributes
    books $id {"usd": 1.5}       what the platform's own books say of a rental
    bills 1                      so many rentals bill
    differ $one $two             two values
    repeat 3 GET /path           a line, so many times
    pass starting                as long as this takes (Paperspace)
    wrong "text"                 what was sent is not in the vendor's document, which fails a test that does not say so

`$NAME = {...}` names a value; `POST /path $NAME {...}` sends the named body with these changes. In an answer an object
names the fields that matter, a list is whole (`["...", x]`: one item is like x), `"$id"` is kept at first and equal
from then on, `"~text"` holds the text, `"?"` is anything but null, `"!"` is not there.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators import autodl, lambda_api, paperspace, runpod
from tests.simulators.core import TRANSPORT, SimServer, Simulator, VirtualClock, draw
from tests.simulators.rental import rental, rentals
from tests.simulators.vastai import VastSimulator
from tests.simulators.vastai.market import Machine

FOLDER = Path(__file__).with_name("recorded")
START = 1_790_000_000.0
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Nothing here speaks TLS, and to load the CAs for each client costs more than a sample."""
Makes = Callable[..., tuple[Simulator, str, str]]


def _vastai() -> tuple[Simulator, str, str]:
    """Its file says what is on offer."""
    sim = VastSimulator(clock=VirtualClock(START))
    sim.add_account("ann")
    more = {"gpu_name": "A100 SXM4", "gpus": 4, "gpu_ram": 81920, "min_bid": 0.60, "geolocation": "Berlin, DE"}
    sim.world.market.add(Machine(1, 11))
    sim.world.market.add(Machine(2, 12, dph=1.20, **more))  # type: ignore[arg-type]
    sim.world.market.add(Machine(3, 13, dph=0.35, verified=False, reliability=0.91, volume_space=0.0))
    return sim, sim.customers["5000"].key, sim.add_account("bob").key


def _of(module: Any, name: str, **usual: Any) -> Makes:
    def make(**told: Any) -> tuple[Simulator, str, str]:
        return getattr(module, name)(clock=VirtualClock(START), **usual, **told), module.KEY, module.OTHER_KEY

    return make


def _autodl(**told: Any) -> tuple[Simulator, str, str]:
    return autodl.AutodlSim(clock=VirtualClock(START), **told), autodl.TOKEN, "none here"


SIMULATORS: dict[str, Makes] = {
    "autodl": _autodl,
    "lambda_api": _of(lambda_api, "LambdaSim"),
    "paperspace": _of(paperspace, "PaperspaceSim"),
    "runpod": _of(runpod, "RunPodSim", boot=runpod.Boot(at_once=True, reads=1)),
    "vastai": _vastai,
}


@cache
def read(adapter: str) -> tuple[dict[str, Any], dict[str, list[tuple[int, str]]]]:
    """The named values of a file, and the lines of each sample with their numbers."""
    named: dict[str, Any] = {}
    samples: dict[str, list[tuple[int, str]]] = {}
    lines: list[tuple[int, str]] = []
    for number, line in enumerate((FOLDER / f"{adapter}.txt").read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("== "):
            assert line[3:] not in samples, f"{adapter}.txt:{number}: there is such a sample"
            lines = samples[line[3:]] = []
        elif name := re.match(r"\$(\w+) = (.+)", line):
            named[name[1]] = json.loads(name[2])
        elif line and not line.startswith("#"):
            lines.append((number, line))
    return named, samples


EVERY = [
    pytest.param(adapter, title, id=f"{adapter}: {title.partition(' {')[0]}")
    for adapter in SIMULATORS
    for title in read(adapter)[1]
]


class Player:
    """Does the lines of one sample. A request whose answer no line looks at must succeed."""

    def __init__(self, sim: Simulator, keys: dict[str, str], named: dict[str, Any]) -> None:
        self.sim, self.keys, self.named = sim, keys, dict(named)
        self.answer: tuple[int | None, Any] | None = None
        self.client = httpx.Client(base_url=sim.url, timeout=5, verify=NO_TLS)

    def do(self, line: str) -> None:
        if line.startswith("=> "):
            status, _, pattern = line[3:].partition(" ")
            assert self.answer is not None, "no request"
            got, body = self.answer
            assert (got, status) == (int(status) if status != "none" else None, status), body
            if pattern:
                self.like(body, json.loads(pattern), "")
            self.answer = (200, None)
            return
        assert self.answer is None or (self.answer[0] or 0) in range(200, 300), self.answer
        word, _, rest = line.partition(" ")
        if word[0] == "+":
            self.sim.clock.advance(float(word[1:]))
            self.sim.settle()
        elif step := getattr(self, f"do_{word}", None):
            step(rest)
        else:
            self.ask(line)

    def do_fault(self, rest: str) -> None:
        kind, match, told = self.fields(r"(\w+) (\*|[A-Z*]+ \S+)(?: (.+))?", rest)
        self.sim.faults.add(kind, match, **self.value(told or "{}"))

    def do_act(self, rest: str) -> None:
        name, told, result = self.fields(r"(\w+)(?: (.+?))?(?: -> \$(\w+))?", rest)
        done = self.sim.act(name, self.value(told or "{}"))
        if result:
            self.named[result] = done

    def do_set(self, rest: str) -> None:
        name, told = self.fields(r"(\S+) (.+)", rest)
        *way, last = name.split(".")
        where: Any = self.sim
        for step in way:
            where = getattr(where, step)
        assert hasattr(where, last), name
        setattr(where, last, self.value(told))

    def do_books(self, rest: str) -> None:
        box, pattern = self.fields(r"(\S+) (.+)", rest)
        rental = self.sim.ledger.get(str(self.filled(box)))
        shown = {
            "usd": rental.usd,
            "acts": [f"{act.by} {act.what}{'' if act.done else ': not done'}" for act in rental.acts],
        }
        self.like(asdict(rental) | shown, json.loads(pattern), "")

    def do_pass(self, rest: str) -> None:
        for name in rest.split():
            self.do(f"+{getattr(self.sim.machines.times, name)}")  # type: ignore[attr-defined]

    def do_repeat(self, rest: str) -> None:
        count, line = self.fields(r"(\d+) (.+)", rest)
        for _ in range(int(count)):
            self.do(line)

    def do_differ(self, rest: str) -> None:
        one, other = (self.filled(name) for name in rest.split())
        assert one != other

    def do_bills(self, rest: str) -> None:
        assert len(self.sim.ledger.live()) == int(rest), self.sim.ledger.live()

    def do_wrong(self, rest: str) -> None:
        found = self.sim.pardon()
        assert any(json.loads(rest) in one for one in found), found

    def ask(self, line: str) -> None:
        who, method, path, name, told = self.fields(
            r"(?:(\w+|box \S+): )?(GET|PUT|POST|PATCH|DELETE) (\S+)(?: \$(\w+))?(?: (\{.*\}|\[.*\]))?", line
        )
        who = who or "ann"
        key = self.sim.own_keys.of(str(self.filled(who[4:]))) if who.startswith("box ") else self.keys[who]
        scheme = "" if self.sim.name == "autodl" and who != "bearer" else "Bearer "
        headers = {"Authorization": f"{scheme}{key}", "User-Agent": "sweepstack-tests"}
        body = self.value(told) if told else None
        if name:
            changed = {**self.named[name], **(body or {})}
            body = {field: value for field, value in changed.items() if value != "!"}
        try:
            reply = self.client.request(method, str(self.filled(path)), json=body, headers=headers)
        except httpx.TransportError:
            self.answer = (None, None)
            return
        try:
            self.answer = (reply.status_code, reply.json())
        except ValueError:
            self.answer = (reply.status_code, reply.text)

    @staticmethod
    def fields(pattern: str, text: str) -> tuple[Any, ...]:
        found = re.fullmatch(pattern, text)
        assert found, f"not understood: {text}"
        return found.groups()

    def value(self, text: str) -> Any:
        return self.filled(json.loads(text))

    def filled(self, value: Any) -> Any:
        """With what the names stand for. A text that is a name alone is its value, of whatever type."""
        if isinstance(value, dict):
            return {name: self.filled(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        if not isinstance(value, str):
            return value
        if value[:1] == "$" and value[1:] in self.named:
            return self.named[value[1:]]
        return re.sub(r"\$(\w+)", lambda name: str(self.named[name[1]]), value)

    def like(self, got: Any, pattern: Any, where: str) -> None:
        """AssertionError where an answer is not like the pattern."""
        if isinstance(pattern, dict):
            assert isinstance(got, dict), f"{where}: {str(got)[:500]}"
            for name, wanted in pattern.items():
                if wanted == "!":
                    assert name not in got, f"{where}.{name}: {str(got)[:500]}"
                else:
                    assert name in got, f"{where}.{name} is missing: {str(got)[:500]}"
                    self.like(got[name], wanted, f"{where}.{name}")
        elif isinstance(pattern, list) and pattern[:1] == ["..."]:
            assert any(self.is_like(one, pattern[1]) for one in got), f"{where}: {str(got)[:500]}"
        elif isinstance(pattern, list):
            assert len(got) == len(pattern), f"{where}: {str(got)[:500]}"
            for number, (one, wanted) in enumerate(zip(got, pattern, strict=True)):
                self.like(one, wanted, f"{where}[{number}]")
        elif isinstance(pattern, str) and pattern[:1] == "$" and pattern[1:] not in self.named:
            assert got, f"{where}: {str(got)[:500]}"
            self.named[pattern[1:]] = got
        elif isinstance(pattern, str) and pattern[:1] == "~":
            assert self.filled(pattern[1:]) in str(got), f"{where}: {str(got)[:500]}"
        elif pattern == "?":
            assert got is not None, where
        elif isinstance(pattern, float):
            assert got == pytest.approx(pattern, rel=1e-3, abs=1e-6), f"{where}: {str(got)[:500]}"
        else:
            assert got == self.filled(pattern), f"{where}: {str(got)[:500]}"

    def is_like(self, got: Any, pattern: Any) -> bool:
        try:
            self.like(got, pattern, "")
        except AssertionError:
            return False
        return True


def test_a_sample_shows_each_fault_of_a_simulator() -> None:
    """But `no_key`, which only a box that is a machine shows (tests/rented/test_lease.py)."""
    for adapter, make in SIMULATORS.items():
        text = (FOLDER / f"{adapter}.txt").read_text(encoding="utf-8")
        assert set(make()[0].kinds) - set(re.findall(r"^fault (\w+)", text, re.MULTILINE)) <= {"no_key"}


def test_a_seed_draws_the_same_faults_again_and_only_what_there_is() -> None:
    for adapter in rentals():
        for menu in (rental(adapter).menu, rental(adapter).spot_menu):
            plans = [[vars(rule) for rule in draw(seed, menu)] for seed in range(200)] if menu else []
            assert plans == [[vars(rule) for rule in draw(seed, menu)] for seed in range(len(plans))]
            kinds = {rule["kind"] for plan in plans for rule in plan}
            assert kinds == {choice.kind for choice in menu} <= set(SIMULATORS[adapter]()[0].kinds) | set(TRANSPORT)


@pytest.mark.parametrize("adapter", ["runpod", "vastai"])
def test_it_is_served_by_itself(adapter: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.simulators", adapter, "--state", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            url = re.search(r"http://[\d.:]+", served.stdout.readline())
            assert url
            assert httpx.get(f"{url[0]}/__sim__/state", verify=NO_TLS).json()["simulator"] == adapter
        finally:
            served.terminate()
        assert served.wait(120) == 0


@pytest.mark.parametrize(("adapter", "title"), EVERY)
def test_a_recorded_sample(adapter: str, title: str) -> None:
    told = title.partition(" {")
    sim, key, other = SIMULATORS[adapter](**json.loads("".join(told[1:]) or "{}"))
    named, samples = read(adapter)
    with SimServer(sim):
        player = Player(sim, {"ann": key, "bob": other, "bearer": key, "stranger": "no-key"}, named)
        with player.client:
            for number, line in samples[title]:
                try:
                    player.do(line)
                except AssertionError as error:
                    raise AssertionError(f"{adapter}.txt:{number}: {line}\n{error}") from error
    sim.check()
    assert sim.faults.unfired() == []
