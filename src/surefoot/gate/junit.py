"""A verdict as JUnit XML, which CI services show as a list of tests: one test for each check.

An XML writer escapes all text, as names from files may be hostile.
"""

import xml.etree.ElementTree as ET
from pathlib import Path

from surefoot import files
from surefoot.verdict import Check, Verdict


def junit(verdict: Verdict) -> bytes:
    failed = sum(not c.holds for c in verdict.checks)
    suite = ET.Element("testsuite", name=_clean(verdict.title), tests=str(len(verdict.checks)), failures=str(failed), errors="0", time=str(verdict.meta.get("seconds", 0)))  # fmt: skip
    for check in verdict.checks:
        case = ET.SubElement(suite, "testcase", classname="surefoot.gate", name=_clean(check.name))
        if not check.holds:
            failure = ET.SubElement(case, "failure", message=_clean(_words(check)))
            failure.text = _clean(check.evidence)
        else:
            ET.SubElement(case, "system-out").text = _clean(f"{_words(check)}; {check.evidence}")
    for name, why in verdict.meta.get("skipped", {}).items():
        case = ET.SubElement(suite, "testcase", classname="surefoot.gate", name=_clean(name))
        ET.SubElement(case, "skipped", message=_clean(why))
    suite.set("tests", str(len(suite)))
    suite.set("skipped", str(len(verdict.meta.get("skipped", {}))))
    whole = ET.Element("testsuites")
    whole.append(suite)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(whole, encoding="utf-8") + b"\n"


def write(path: Path, verdict: Verdict) -> Path:
    files.write(Path(path), junit(verdict))
    return Path(path)


def _words(check: Check) -> str:
    ends = "" if check.low is None or check.high is None else f" ({check.low:.4g} .. {check.high:.4g})"
    return f"{check.value:.4g} {check.unit}{ends}, limit {check.limit:.4g} {check.unit}".replace("  ", " ").strip()


def _clean(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF and ord(c) not in (0xFFFE, 0xFFFF)))  # fmt: skip
