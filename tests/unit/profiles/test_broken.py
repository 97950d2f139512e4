"""A hundred broken profiles, each a small edit of a real one: the mistake has its line, its key, and what to write.

Each case names the text that is replaced; the line that is expected is where that text stood, or where `at` stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.load import FOLDER, load_profile, mistakes_in


@dataclass(frozen=True)
class Case:
    """`name`: the profile; `key` and `fix`: what the mistake has in them; `at`: the text on whose line it is."""

    name: str
    old: str
    new: str
    key: str
    fix: str
    at: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.key}-{self.fix}"[:60].replace(" ", "_")


L, A, R, G, M, V = "local", "autodl", "runpod", "gpushare", "lambda", "vastai"
SYNTAX = [
    Case(L, "---\nplatform", "platform", "", "write --- as its first line", "platform: local"),
    Case(L, "proved_live: 2026-11\n---\n", "proved_live: 2026-11\n", "", "write --- on a line of its own", "<last>"),
    Case(L, "kind: workstation", "kind: work: station", "", "quote the value there"),
    Case(L, "kind: workstation", "kind: [workstation", "", "mend the brackets", "meter_stop_verb: "),
    Case(L, "kind: workstation", "kind: *nothing", "", "quote the value there"),
    Case(L, "kind: workstation", "kind: \tworkstation\n\tx: 1", "", "a tab stands there", "\tx: 1"),
    Case(L, "kind: workstation", 'kind: "workstation', "", "quote the value there", "<any>"),
    Case(L, "kind: workstation", "kind: workstation\nkind: ssh", "kind", "take one of the two out", "kind: ssh"),
    Case(L, "kind: workstation", "kind: !!binary workstation", "kind", "take the tag out"),
    Case(L, "kind: workstation", "? [a]\n: b", "", "write a key of letters", "? [a]"),
    Case(R, "price_per_gb_month: 0.10}", "price_per_gb_month: 010}", "price_per_gb_month", "write 10, or in quotes"),
]
TYPES = [
    Case(L, "kind: workstation", "knid: workstation", "knid", 'did you mean "kind"?'),
    Case(L, "kind: workstation", "kind: workstation\nzzz: fine", "zzz", "take it out; known are", "zzz"),
    Case(L, "kind: workstation\n", "", "kind", 'add it: "ssh-rental" or "cloud-api"', "platform: local"),
    Case(L, "proved_live: 2026-11\n", "", "proved_live", "add it: ", "platform: local"),
    Case(L, "kind: workstation", "kind: laptop", 'kind: "laptop"', '"workstation"'),
    Case(L, "kind: workstation", "kind: workstatoin", "kind", 'did you mean "workstation"?'),
    Case(L, "kind: workstation", "kind: null", "kind: null", 'write "ssh-rental", '),
    Case(
        L, "spot_grace: null", "spot_grace: 5s", 'spot_grace: "5s"', "write a number of seconds, such as 5 s, or null"
    ),
    Case(L, "spot_grace: null", "spot_grace: n/a", "spot_grace", "or null where there is none"),
    Case(A, "meter_stop_verb: stop", "meter_stop_verb: 关机", "meter_stop_verb", "word belongs in verbs.stop.native"),
    Case(L, "spot_grace: null", "spot_grace: -5 s", "spot_grace", "such as 5 s, or null"),
    Case(L, "spot_grace: null", "spot_grace: 5", "spot_grace: 5", "such as 5 s, or null"),
    Case(L, "free_egress: true", 'free_egress: "no"', 'free_egress: "no"', "write true or false, or null"),
    Case(L, "free_egress: true", "free_egress: yes", "free_egress", "write true or false, or null"),
    Case(L, "meter_stop_irreversible: true", "meter_stop_irreversible: maybe", "meter_stop_irr", "write true or false"),
    Case(L, "platform: local\n", "platform: Local\n", "platform", "write lower-case letters"),
    Case(L, "platform: local\n", "platform: loco\n", "platform", "write local, or call the file so"),
    Case(L, "adapter: local", "adapter: my-adapter", "adapter", "write lower-case letters, digits and _"),
    Case(L, "uses_image: false", "uses_image: 0", "uses_image: 0", "write true or false"),
    Case(R, "meter: {price_per_hour: null", "meter: {price_per_hour: cheap", "meter.price_per_hour", "write a number"),
    Case(R, "billed_by: second", "billed_by: minutes", "meter.billed_by", 'did you mean "minute"?'),
    Case(G, "currency: CNY", "currency: RMB", "meter.currency", 'write "USD" or "CNY"'),
    Case(R, "rents: true}", "rent: true}", "meter.rent", 'did you mean "rents"?'),
    Case(R, "gpus: {offered: true, checked: true}", "gpus: all", "gpus", "write keys and values (offered, checked)"),
    Case(R, "conveniences:\n  - Direct", "conveniences:\n    Direct", "conveniences", "write a list", "conveniences:"),
    Case(R, "size_cap_bytes: 4096000000000", "size_cap_bytes: 4 TB", "size_cap_bytes", "write a whole number, or null"),
    Case(R, "price_per_gb_month: 0.07", "price_per_gb_month: $0.07", "price_per_gb_month", "write a number, or null"),
    Case(R, "list_lag: null", "list_lag: 15 min", "list_lag", "such as 5 s, or null"),
    Case(R, "variable: RUNPOD_API_KEY", "variable: runpod-key", "own_key.variable", "write the name of a variable"),
    Case(R, "proved: null, from_start", "proved: lately, from_start", "own_key.proved", 'write the month as "2026-11"'),
    Case(R, "host_driver_cuda_max: null", "host_driver_cuda_max: new", "host_driver_cuda_max", "in quotes, such as"),
    Case(L, "kind: workstation", "KIND: workstation", "KIND", 'did you mean "kind"?'),
]
TIERS = [
    Case(L, "  scratch: {path: scratch", "  scratch: {path: /scratch", 'path: "/scratch"', "such as mnt/durable"),
    Case(L, "  scratch: {path: scratch", "  scratch: {path: ../../etc", "tiers.scratch.path", "such as mnt/durable"),
    Case(L, "  scratch: {path: scratch", "  scratch: {path: data", "tiers.data.path", "of its own", "  data:"),
    Case(L, "  scratch: {path: scratch", "  scratch: {path: data/x", "tiers.scratch.path", "write a path of its own"),
    Case(L, "{stop: true, destroy: true}", "{stop: false, destroy: true}", "tiers.durable", "stop: true", "  durable:"),
    Case(L, "destroy: true}", "destroy: null}", "verbs.destroy.keeps", "put durable into kills", "keeps: [durable]"),
    Case(L, "keeps: [durable]", "keeps: []", "verbs.destroy", "add durable to one of them", "  destroy:\n"),
    Case(L, "kills: [scratch, data]", "kills: [scratch, data, durable]", "verbs", "only once", "  destroy:\n"),
    Case(L, "kills: [scratch, data]", "kills: [scratch, data, cache]", "verbs", "which is no tier", "  destroy:\n"),
    Case(L, "meter_stop_irreversible: true", "meter_stop_irreversible: false", "meter_stop_irr", "the same in both"),
    Case(M, "meter_stop_verb: destroy\n", "meter_stop_verb: stop\n", "meter_stop_verb", "describe it there, or"),
    Case(L, "meter_stop_verb: destroy\n", "meter_stop_verb: release\n", "meter_stop_verb", 'write "stop" or "destroy"'),
    Case(R, "    native: stop\n", "", "verbs.stop.native", "add it: text", "  stop:\n"),
    Case(R, "stops_meter: false", "stops_meter: partly", "verbs.stop.stops_meter", "write true or false"),
    Case(R, "issued_by: api", "issued_by: robot", "verbs.stop.issued_by", 'write "api", "ssh" or "person"'),
    Case(R, "issued_by: api", "issued_by: person", "verbs.stop.manual", "add manual", "  stop:\n"),
    Case(A, "    command: shutdown\n", "", "verbs.stop.command", "add command", "  stop:\n"),
    Case(
        A,
        "irreversible: false\n    k",
        "irreversible: true\n    k",
        "verbs.stop.issued_by",
        "write person",
        "issued_by: ssh",
    ),
    Case(
        A,
        "issued_by: ssh\n    command: shutdown",
        "issued_by: api\n    command: shutdown",
        "verbs.stop.command",
        "take command out",
        "command: shutdown",
    ),
    Case(M, "      manual: *manual\n", "", "with_volume.verbs.destroy.manual", "add manual", "with_volume:\n<verbs>"),
    Case(A, 'path: "", place: /,', 'path: "",', "tiers.system.path", "or a place"),
    Case(A, "place: /root/autodl-fs", "place: autodl-fs", "tiers.durable.place", "begins with / or ~/"),
    Case(
        M,
        '/lambda/nfs/{volume}"\n      mounted',
        '/lambda/nfs/{name}"\n      mounted',
        "durable.place",
        "{volume} in it",
    ),
    Case(R, "      mount: mnt/durable\n", "", "with_volume", "give the one that does its mount", "with_volume:"),
    Case(
        R,
        "    durable:\n      path",
        "    shared:\n      path",
        "with_volume",
        "name the same in both",
        "  tiers:\n    scr",
    ),
    Case(R, "survives: {stop: true, destroy: true}", "survives: {stop: true, destory: true}", "destory", "destroy"),
    Case(R, "region_locked: true", "region_lock: true", "region_lock", 'did you mean "region_locked"?'),
]
ACCESS = [
    Case(
        A,
        "after: 15 d, kills",
        "after: 15, kills",
        "danger_clocks[0].after: 15",
        "write a number of days, such as 15 d",
    ),
    Case(A, "after: 15 d, kills: [scratch", "after: 15 d, kills: [scrap", "danger_clocks[0]", "name some of scratch"),
    Case(
        G, "with_volume: [scratch, data], in", "with_volume: [hy-tmp], in", "danger_clocks[0]", "name some of scratch"
    ),
    Case(
        G,
        "starts: arrears",
        "starts: debts",
        "danger_clocks[2].starts",
        'write "stop", "arrears", "start", "use" or "contract"',
    ),
    Case(A, "moves: create", "moves: often", "ssh.moves", 'write "never", "create" or "start", or null'),
    Case(A, "files: true", "files: false", "ssh.flavours[0]", "add why_not, or files: true"),
    Case(
        A,
        "flavours: [{kind: direct",
        "flavours: [{kind: relayed",
        "ssh.flavours[0].kind",
        'write "direct" or "proxied"',
    ),
    Case(
        G,
        'flavours: [{kind: direct, address: "root@<host>.gpushare.com -p <port>", files: true}]',
        "flavours: []",
        "ssh.flavours",
        "write at least one",
    ),
    Case(G, "    pip: {PIP_INDEX_URL", "    ppi: {PIP_INDEX_URL", "network.mirrors.ppi", '"pip"'),
    Case(
        G, "    pip: {PIP_INDEX_URL", "    pip: {PIP-INDEX-URL", "PIP-INDEX-URL", "the name of an environment variable"
    ),
    Case(A, "caches: {HF_HOME", "caches: {HF_ENDPOINT: x, HF_HOME", "network", "take one of them out", "network:"),
    Case(A, "python: /root/miniconda3", "pyhton: /root/miniconda3", "environment.pyhton", 'did you mean "python"?'),
    Case(A, "stop_from_inside: proved", "stop_from_inside: unproved", "stop_refused", "add it", "platform: autodl"),
    Case(M, "stop_from_inside: refuted", "stop_from_inside: proved", "stop_from_inside", "write unproved"),
    Case(M, "stop_from_inside: refuted\n", "", "verbs", "add stop_from_inside", "verbs:\n"),
    Case(A, "price_per_hour: null", "price_per_hour: 1", "meter.quoted", "write quoted: true"),
]
STAMPS = [
    Case(L, "  kind: 2026-11\n", "", "stamps", "write kind: with the month", "stamps:"),
    Case(L, "  kind: 2026-11\n", "  kind: lately\n", "stamps.kind", "write YYYY-MM or YYYY-MM-DD"),
    Case(L, "  kind: 2026-11\n", "  kind: 2026-13\n", "stamps.kind", "write YYYY-MM or YYYY-MM-DD"),
    Case(L, "  kind: 2026-11\n", "  kind: 2099-01\n", "stamps.kind", "not ahead of today"),
    Case(A, "  ssh: unverified\n", "", "stamps", "write ssh: with the month", "stamps:"),
    Case(L, "proved_live: 2026-11", "proved_live: lately", "proved_live", "or never"),
    Case(L, '  2026-11: "', '  2026-10: "', "sources", 'write 2026-11: "where', "sources:"),
    Case(R, '  2026-06: "the vendor\'s documents"', '  2026-06: ""', "sources.2026-06", "write whose pages"),
    Case(R, "sources:\n", "sources:\n  2019-01: x\n", "sources.2019-01", "take it out", "  2019-01: x"),
    Case(L, '  HF_HOME: ""\n', "", "overrides", 'add HF_HOME: ""', "overrides:"),
    Case(L, "  HF_HOME:", "  HFHOME:", "overrides", 'add HF_HOME: ""', "overrides:"),
    Case(
        A, "  DURABLE_DIR: /root/autodl-fs", "  DURABLE_DIR: /root/autodl-tmp", "overrides.DURABLE_DIR", "what they say"
    ),
    Case(A, "  PROXY_HOOK: source", "  PROXY_HOOK: . ", "overrides.PROXY_HOOK", "write what they say"),
    Case(A, "PY: /root/miniconda3/bin/python\n", "PY: python\n", "overrides.PY", "write what they say"),
    Case(R, "unknown: [", "unknown: [free_egress, ", "free_egress", "take it out of unknown", "free_egress: true"),
    Case(R, "unknown: [", "unknown: [weather, ", "unknown", "take it out"),
]
PROSE = [
    Case(L, "## 3. Network", "## 3. Networks", "## 3. Networks", "write ## 3. Network"),
    Case(L, "## 3. Network", "## 4. Network", "## 4. Network", "write ## 3. Network"),
    Case(L, "## 3. Network", "### 3. Network", "## 4. Interruption", "write ## 3. Network", "## 4. Interruption"),
    Case(
        L, "## 8. Overrides", "## 8. Overrides\n\nx (2026-11)\n\n## 9. More", "## 9. More", "take it out", "## 9. More"
    ),
    Case(L, "- **LOC2**", "- **LOC1**", "gotcha LOC1", "give the later one a new id"),
    Case(L, "- **LOC2** ", "- ", "gotcha", "write - **ID1** symptom", "<same>"),
    Case(A, "**AD-DANGER**", "**AD-9**", "gotcha AD-9", "with an id such as RP1 or AD-DANGER"),
    Case(
        R,
        "| scratch | `scratch/` | yes",
        "| scratch | `scratch/` | no",
        "2. Storage, scratch",
        "write the row | scratch",
    ),
    Case(L, "| data | `data/`", "| dat | `data/`", "2. Storage, data", "write the row | data", "<section 2>"),
]
CASES = [*SYNTAX, *TYPES, *TIERS, *ACCESS, *STAMPS, *PROSE]


def line_of(case: Case, before: str, after: str) -> int | None:
    """The line that the mistake is expected on; None: any."""
    if case.at == "<any>":
        return None
    if case.at == "<last>":
        return after.count("\n")
    if case.at == "<section 2>":
        return after[: after.index("## 2. Storage")].count("\n") + 3
    if case.at == "with_volume:\n<verbs>":
        return after[: after.index("    destroy:", after.index("with_volume:"))].count("\n") + 1
    place = before.index(case.old) if case.at in ("", "<same>") else after.index(case.at)
    return after.count("\n", 0, place) + 1


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_broken_profile_has_line_key_and_fix(case: Case, tmp_path: Path) -> None:
    before = (FOLDER / f"{case.name}.md").read_text("utf-8")
    assert case.old in before, "the profile changed: mend this case"
    after = before.replace(case.old, case.new, 1)
    path = tmp_path / f"{case.name}.md"
    path.write_text(after, "utf-8")
    found = mistakes_in(path, path.name)
    fitting = [one for one in found if case.key in f"{one.key} {one.problem}" and case.fix in one.fix]
    said = "\n".join(one.words for one in found)
    assert fitting, said
    assert line_of(case, before, after) in (None, fitting[0].line), said
    for one in found:
        assert one.fix, said
        assert one.problem, said
        assert 1 <= one.line <= after.count("\n") + 1, said
        assert not re.search(r"[Ii]nput should|[Ff]ield required|[Vv]alue error", one.words), "words of a library"
    with pytest.raises(ConfigError, match=re.escape(f"{case.name}.md does not hold")):
        load_profile(case.name, tmp_path)


def test_there_are_a_hundred() -> None:
    assert len(CASES) >= 100
    assert len({(case.name, case.old, case.new) for case in CASES}) == len(CASES)
