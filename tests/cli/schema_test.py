#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks JSON against the schemas in docs/: explain, and diff where its "schema"
field says so.

    schema_test.py               all golden reports, and that damage is noticed
    schema_test.py FILE...       these files ("-": standard input)

The validator covers the keywords that the schema uses, and refuses a schema
that uses others. It is stricter than the standard in two ways: a field that
the schema does not name is an error (readers ignore those, but ours are all
written down), and 1.0 is no integer. Standard library only.
"""
import copy
import json
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parent.parent / "docs"

NOTES = {"$schema", "$defs", "title", "description", "examples"}
TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
}


def check(value, schema, root, path="$"):
    """Yields one line for each disagreement."""
    for keyword, want in schema.items():
        if keyword in NOTES or keyword in ("properties", "required"):
            continue
        if keyword == "$ref":
            target = root
            for step in want.removeprefix("#/").split("/"):
                target = target[step]
            yield from check(value, target, root, path)
        elif keyword == "type":
            names = [want] if isinstance(want, str) else want
            if not any(TYPES[name](value) for name in names):
                yield f"{path}: {value!r:.60} is not {' or '.join(names)}"
        elif keyword == "const":
            if value != want:
                yield f"{path}: {value!r:.60} is not {want!r}"
        elif keyword == "enum":
            if value not in want:
                yield f"{path}: {value!r:.60} is not one of {want}"
        elif keyword == "minimum":
            if TYPES["number"](value) and value < want:
                yield f"{path}: {value} is less than {want}"
        elif keyword == "pattern":
            if isinstance(value, str) and not re.search(want, value):
                yield f"{path}: {value!r:.60} does not match {want}"
        elif keyword == "items":
            for i, item in enumerate(value if isinstance(value, list) else []):
                yield from check(item, want, root, f"{path}[{i}]")
        elif keyword == "oneOf":
            tries = [list(check(value, s, root, path)) for s in want]
            if sum(not errors for errors in tries) != 1:
                yield f"{path}: fits {sum(not e for e in tries)} of oneOf"
        else:
            raise ValueError(f"{path}: keyword {keyword} is not implemented")
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                yield f"{path}: {name} is missing"
        for name in value if "properties" in schema else []:
            if name not in schema["properties"]:
                yield f"{path}: unknown field {name}"
        for name, sub in schema.get("properties", {}).items():
            if name in value:
                yield from check(value[name], sub, root, f"{path}.{name}")


def validate(document):
    name = (document["schema"]["name"] if isinstance(document, dict)
            and isinstance(document.get("schema"), dict)
            and document["schema"].get("name") == "ingero.diff"
            else "ingero.explain")
    schema = json.loads(
        (DOCS / (name.removeprefix("ingero.") + ".schema.json")).read_text())
    return list(check(document, schema, schema))


class SchemaTest(unittest.TestCase):
    def golden(self):
        files = sorted((HERE / "golden").glob("*/report.json"))
        self.assertGreaterEqual(len(files), 5)
        return {f.parent.name: json.loads(f.read_text()) for f in files}

    def test_every_golden_report_fits(self):
        for name, document in self.golden().items():
            self.assertEqual(validate(document), [], name)

    def test_golden_reports_fill_every_array_once(self):
        # Else the test above proves little.
        documents = list(self.golden().values())
        for name in ("processes", "feeding", "operations", "findings",
                     "chains", "not_evaluated"):
            self.assertTrue(any(d[name] for d in documents), name)
        findings = [f for d in documents for f in d["findings"]]
        for name in ("windows", "timeline", "culprits", "evidence",
                     "recommendations", "symptoms", "code"):
            self.assertTrue(any(f[name] for f in findings), name)
        self.assertTrue(any(d["trace"]["losses"] for d in documents))

    def test_damage_is_noticed(self):
        good = self.golden()["loader-oversubscribed"]
        finding = ("findings", 0)
        damages = [
            (("schema", "version"), 2),
            (("schema", "name"), "other"),
            (("verdict",), None),
            (("trace", "span", "begin_ns"), 1.5),
            (("trace", "span", "end_ns"), "1"),
            (("trace", "complete"), 1),
            (("trace", "wall_clock_anchor"), {"monotonic_ns": 1}),
            (("processes", 0, "pid"), -1),
            (("processes", 0, "parent"), {"pid": 1}),
            (("processes", 0, "switches", "asleep"), 1.0),
            (("feeding", 0, "span_ns"), True),
            (("operations", 0, "layer"), "Runtime"),
            (("operations", 0, "surprise"), 1),
            (finding + ("severity",), "HIGH"),
            (finding + ("cause",), "Loader Oversubscribed"),
            (finding + ("timeline", 0, "layer"), "host"),
            (finding + ("windows",), {}),
            (finding + ("evidence", 0, "value"), "31"),
            (("chains", 0, "split", "calls"), -1),
            (("chains", 0, "split", "holder"), {"tid": 1}),
            (("not_evaluated", 0, "why"), 3),
        ]
        for path, value in damages:
            bad = copy.deepcopy(good)
            at = bad
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = value
            self.assertNotEqual(validate(bad), [], path)

    def test_every_field_is_required(self):
        good = self.golden()["loader-oversubscribed"]

        def objects(value, path=()):
            if isinstance(value, dict):
                yield path
                for k, v in value.items():
                    yield from objects(v, path + (k,))
            elif isinstance(value, list):
                for i, v in enumerate(value[:1]):
                    yield from objects(v, path + (i,))

        for path in objects(good):
            at = good
            for step in path:
                at = at[step]
            for name in at:
                bad = copy.deepcopy(good)
                inner = bad
                for step in path:
                    inner = inner[step]
                del inner[name]
                self.assertNotEqual(validate(bad), [], path + (name,))


def main(files):
    failed = False
    for name in files:
        with sys.stdin if name == "-" else open(name) as file:
            document = json.load(file)
        for line in validate(document):
            print(f"{name}: {line}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(sys.argv[1:]))
    unittest.main()
