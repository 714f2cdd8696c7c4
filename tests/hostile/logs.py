"""Robot logs as text: CSV, TSV, JSON; and the mapping files that say what their columns are."""

import json
from collections.abc import Iterator
from typing import Any

from .case import ESCAPE, FORGED, Case, spoilt, text

GOOD = "time,q\n0,1\n0.01,2\n0.02,3\n0.03,4\n"
ROWS = [{"time": k / 100, "q": k} for k in range(5)]


def csv() -> Iterator[Case]:
    def one(name: str, content: Any, want: str = "refuse", end: str = "csv", *flags: str, **more: Any) -> Case:
        return text("csv", name, f"a.{end}", content, "log", f"a.{end}", *flags, want=want, **more)

    yield one("sound", GOOD, "accept")
    yield one("sound tsv", GOOD.replace(",", "\t"), "accept", "tsv")
    yield one("largest double", GOOD.replace("2\n", "1.7976931348623157e308\n"), "either")
    refused = {
        "empty": "", "header only": "time,q\n", "ragged": "time,q\n0,1\n1\n",
        "word": "time,q\n0,1\n1,fast\n", "clock back": "time,q\n0,1\n2,1\n1,1\n", "clock nan": "time,q\n0,1\nnan,1\n2,1\n",
        "same names": "q,q\n0,1\n1,2\n", "nul": "time,q\n0,\x001\n",
        "overflow": "time,q\n0,1\n1,1e999\n", "underscore": "time,q\n0,1\n1,1_0\n",
        "formula": "time,q\n0,1\n1,=cmd|' /C calc'!A0\n",

    }  # fmt: skip
    for name, content in refused.items():
        yield one(name, content)
    either = {
        "arabic digits": "time,q\n0,\u0661\n1,\u0662\n2,\u0663\n",
        "one row": "time,q\n0,1\n",

        "bidi name": "time,\u202eq\n0,1\n1,2\n2,3\n", "escape in a name": f"time,{ESCAPE}\n0,1\n1,2\n2,3\n",
        "forged line": f'time,"q\n{FORGED}"\n0,1\n1,2\n2,3\n', "c1": "time,q\x9b31m\n0,1\n1,2\n2,3\n", "surrogate": "time,q\ud800\n0,1\n1,2\n2,3\n",
    }  # fmt: skip
    for name, content in either.items():
        yield one(name, content, "either")
    yield one("utf-16", GOOD.encode("utf-16"))
    yield one("binary", bytes(range(256)) * 64)
    yield one("long quote", lambda: 'time,q\n0,"' + "9" * 400_000 + '"\n')
    yield one("one long name", lambda: "time," + "q" * 5_000_000 + "\n0,1\n1,2\n2,3\n", "either")
    for n in (10**5, 10**6):
        yield one(f"{n:.0e} columns", lambda n=n: "time," + ",".join(f"q{k}" for k in range(n)) + "\n" + "\n".join(",".join([str(j)] * (n + 1)) for j in range(3)) + "\n", "either", heavy=n > 10**5)  # fmt: skip
        yield one(f"{n:.0e} equal names", lambda n=n: "time" + ",q" * n + "\n" + "0" + ",1" * n + "\n", heavy=n > 10**5)
        yield one(f"{n:.0e} names, one twice", lambda n=n: "time," + ",".join(f"q{k}" for k in range(n)) + ",q7\n0" + ",1" * (n + 1) + "\n", heavy=n > 10**5)  # fmt: skip
    yield one("1e6 rows", lambda: "time,q\n" + "".join(f"{k},1\n" for k in range(10**6)), "either", heavy=True)
    yield one("1e6 quotes", lambda: 'time,q\n0,"' + '""' * 10**6 + '"\n1,2\n')
    yield one("1e6 brackets", lambda: "time," + "(" * 10**6 + "\n0,1\n1,2\n2,3\n", "either")
    yield one("rate 1e300", GOOD, "refuse", "csv", "--rate", "1e300")
    yield one("rate nan", GOOD, "refuse", "csv", "--rate", "nan")
    yield one("resampled over a year", "time,q\n0,1\n31536000,1\n63072000,1\n", "either", "csv", "--rate", "1000")
    yield one("saved over itself", GOOD, "refuse", "csv", "--save", "a.csv")
    yield one("saved to a device", GOOD, "refuse", "csv", "--save", "/dev/full")
    yield one("saved beyond any folder", GOOD, "refuse", "csv", "--save", "/proc/self/x.npz")
    for k in range(2):
        yield one(f"cut {k}", spoilt(GOOD.encode() * 5, k, 0), "either")
        yield one(f"turned {k}", spoilt(GOOD.encode(), 60 + k, 1 + k), "either")


def json_logs() -> Iterator[Case]:
    def one(name: str, content: Any, want: str = "refuse", **more: Any) -> Case:
        return text("json", name, "a.json", content, "log", "a.json", want=want, **more)

    good = json.dumps(ROWS)
    yield one("sound records", good, "accept")
    yield one("sound columns", '{"time":[0,1,2],"q":[1,2,3]}', "accept")
    yield one("constants", '{"mass":0.4,"entries":' + good + "}", "accept")
    refused = {
        "empty": "", "half": '{"time":[0,1',
        "mixed": '[{"time":0,"q":1},{"time":1,"q":"a"}]', "overflow": '{"time":[0,1],"q":[1e999,0]}', "clock repeats": '[{"t":0,"q":1},{"t":0,"q":1}]',

        "lone surrogate bytes": b'{"time":[0,1],"\xed\xa0\x80":[1,2]}', "nul": '{"time":[0,1],"q":[1,\x002]}',

    }  # fmt: skip
    for name, content in refused.items():
        yield one(name, content)
    either = {
        "lone surrogate": '{"time":[0,1,2],"\\ud800":[1,2,3]}', "nan": '{"time":[0,1,2],"q":[NaN,Infinity,-Infinity]}', "same key": '{"time":[0,1,2],"time":[3,4,5],"q":[1,2,3],"q":[4,5,6]}',
        "ragged": '{"time":[0,1,2],"q":[[1,2],[1],[1,2]]}', "long whole number": '{"time":[0,1,2],"q":[' + "1" * 390 + ",0,0]}",
        "escape in a key": json.dumps({"time": [0, 1, 2], ESCAPE: [1, 2, 3]}), "forged line": json.dumps({"time": [0, 1, 2], f"q\n{FORGED}": [1, "a", 3]}),
        "dotted keys": '[{"time":0,"a.b":1,"a":{"b":2}},{"time":1,"a.b":1,"a":{"b":2}}]',
        "depth 40": '[{"time":0,"a":' + '{"a":' * 40 + "1" + "}" * 40 + "}]",
    }  # fmt: skip
    for name, content in either.items():
        yield one(name, content, "either")
    yield one("utf-16", good.encode("utf-16"))
    yield one("200k lists deep", lambda: "[" * 200_000)
    yield one("100k objects deep", lambda: '{"a":' * 100_000)
    yield one("1e6 digits", lambda: '{"time":[0,' + "1" * 10**6 + "]}")
    yield one("20k records of their own keys", lambda: json.dumps([{"time": k, f"k{k}": k} for k in range(20_000)]), "either")  # fmt: skip
    yield one("3e6 empty lists", lambda: "[" + "[]," * 3_000_000 + "[]]", "either")
    yield one("1e5 keys", lambda: json.dumps({"time": [0, 1, 2]} | {f"q{k}": [1, 2, 3] for k in range(10**5)}), "either")  # fmt: skip
    yield one("a text of 50 MB", lambda: '{"time":[0,1,2],"q":[1,2,3],"who":"' + "x" * 50_000_000 + '"}', "either", heavy=True)  # fmt: skip
    for k in range(2):
        yield one(f"cut {k}", spoilt(good.encode(), k, 0))
        yield one(f"turned {k}", spoilt(good.encode(), 60 + k, 1 + k), "either")


def mapping() -> Iterator[Case]:
    column = {"from": "q0"}

    def one(name: str, content: Any, want: str = "refuse", **more: Any) -> Case:
        body = content if isinstance(content, str | bytes) or callable(content) else json.dumps(content)
        return text("mapping", name, "m.json", body, "log", "{good}/swing.csv", "--map", "m.json", want=want, **more)

    def whole(**more: Any) -> dict[str, Any]:
        return {"columns": {"joint_pos": column}} | more

    def of(**more: Any) -> dict[str, Any]:
        return {"columns": {"joint_pos": column | more}}

    yield one("sound", whole(), "accept")
    refused: dict[str, Any] = {
        "list": [],
        "unknown key of a column": of(unti="deg"), "from nothing": of(**{"from": "q9"}),
        "from 1e16 names": of(**{"from": "q{0..9999}{0..9999}{0..9999}{0..9999}"}), "from open bracket": of(**{"from": "q{0"}), "from far part": of(**{"from": "q0[99999999999999999999]"}), "from backward part": of(**{"from": "q0[3:1]"}),
        "unit number": of(unit=5), "unit unknown": of(unit="furlong"), "sign 2": of(sign=2), "sign nan": '{"columns":{"joint_pos":{"from":"q0","sign":NaN}}}', "scale inf": '{"columns":{"joint_pos":{"from":"q0","scale":1e999}}}',
        "scale list of lists": of(scale=[[1]]), "names twice": of(names=["a", "a"]),
        "quaternion": of(quaternion="xywz"), "quaternion list": of(quaternion=["wxyz"]), "signed text": of(signed="16"), "rate 1e300": whole(rate=1e300),
        "time unit": whole(time={"from": "time", "unit": "m"}), "constants list": whole(constants=[1]),
        "target": {"_target_": "os.system", "columns": {}}, "duplicate": '{"columns":{"joint_pos":5,"joint_pos":6}}',
    }  # fmt: skip
    for name, content in refused.items():
        yield one(name, content)
    either: dict[str, Any] = {
        "escape in a name": {"columns": {ESCAPE: column}},
        "forged line": of(**{"from": f"q\n{FORGED}"}), "surrogate": '{"columns":{"joint_pos":{"from":"\\ud800"}}}',
    }  # fmt: skip
    for name, content in either.items():
        yield one(name, content, "either")
    yield one("100k deep", lambda: '{"columns":' * 100_000)
    yield one("1e5 columns", lambda: json.dumps({"columns": {f"q{k}": column for k in range(10**5)}}), "either", heavy=True)  # fmt: skip
    yield one("1e6 brackets", lambda: json.dumps(of(**{"from": "{" * 10**6})))
    yield one("4000 by 4000 lists", lambda: json.dumps(of(**{"from": "q{" + ",".join("ab" * 2000) + "}{" + ",".join("ab" * 2000) + "}"})))  # fmt: skip


def everything() -> Iterator[Case]:
    yield from csv()
    yield from json_logs()
    yield from mapping()
