"""What an audit shows, of things with any name at all: nothing that a terminal, Markdown, SARIF or a parser would obey."""

import io
import json
import re
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.audit_markdown import page
from exhume.cli.audit_results import HELP, results
from exhume.cli.audit_text import render
from exhume.cli.terminal import Style
from exhume.host.catalogue import Catalogue
from exhume.host.needs import Facts
from exhume.host.service import Inventory, Restart, Service
from exhume.image.audit import Audit, Live, audit
from exhume.image.audit_json import as_json
from exhume.image.policy import Listed, Policy
from exhume.image.sarif import sarif
from exhume.sources.unit_life import Life
from exhume.sources.unit_sockets_model import Endpoint, Sockets

ANY = st.text(st.characters(), max_size=12)  # lone surrogates too: bytes that were no UTF-8
NAMES = ANY.map(lambda text: f"{text}.service")
ENDLESS = Restart("always", 10.0, 5, float("inf"), True, "it never ends")


@st.composite
def audits(draw: st.DrawFn) -> Audit:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    text = draw(ANY)
    services = tuple(
        Service(
            name,
            draw(st.sampled_from(["unit", "cron", "container"])),
            draw(st.sampled_from(["enabled", "static", text])),
            draw(st.booleans()),
            path=f"/{text}",
            description=text,
            command=(text,),
            package=text,
            pulled_by=(text,),
            needed_by=draw(st.sampled_from([(), (text,)])),
            restart=draw(st.sampled_from([None, ENDLESS])),
            conditions=draw(st.sampled_from([(), (text,)])),
            notes=(text,),
        )
        for name in names
    )
    policy = Policy((Listed(text or "x", text, text, date(2020, 1, 1), (text,) if text else ()),))
    ends = Sockets((Endpoint("unix", f"/{text}", 1, (text,), 1),), 1, (text,), (text,))
    life = Life(names[0], text, text, 7, text, 1, 5, text, 1.0, 1.0)
    live = draw(st.sampled_from([None, Live({names[0]: life}, {names[0]: ends}, loops={names[-1]: text})]))
    facts = Facts(lambda path: False, lambda path: False, lambda path: None)
    inventory = Inventory(text, services, (text,), (text,), {"file": text})
    return audit(inventory, Catalogue([]), facts, date(2026, 11, 16), policy, live, (text,))


def shown(audit_: Audit, names: tuple[str, ...], everything: bool) -> str:
    return render(audit_, "/root\udcff", names, everything, Style(io.StringIO(), False), 100)


@given(audits(), st.booleans())
def test_the_terminal_gets_nothing_that_it_would_obey(audit_: Audit, everything: bool) -> None:
    text = shown(audit_, (), everything) + shown(audit_, tuple(unit.service.name for unit in audit_.units), everything)
    assert all(line.isprintable() for line in text.split("\n"))
    text.encode("utf-8")


@given(audits(), st.booleans())
def test_markdown_gets_no_markup_from_names(audit_: Audit, everything: bool) -> None:
    text = page(audit_, "/root\udcff", (), everything)
    assert all(line.isprintable() for line in text.split("\n"))
    assert not re.search(r"<[a-zA-Z!/]", text)
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)


@given(audits())
def test_programs_get_json_that_any_parser_takes(audit_: Audit) -> None:
    document = as_json(audit_, "/root\udcff")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode("utf-8")) == document
    assert len(document["units"]) == len(audit_.units)
    told = sarif(results(audit_), "1.0")
    json.dumps(told, ensure_ascii=False).encode("utf-8")
    assert {rule["id"] for rule in told["runs"][0]["tool"]["driver"]["rules"]} <= HELP.keys()


@given(audits())
def test_the_counts_are_of_what_is_listed(audit_: Audit) -> None:
    counts = as_json(audit_, "/")["counts"]
    assert counts["starts"] == counts["harmful"] + counts["unused"] + counts["needed"] + counts["unknown"]
    assert shown(audit_, (), True).count("HARMFUL  ") == len(audit_.of("harmful"))
