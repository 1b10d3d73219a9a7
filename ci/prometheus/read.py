"""Reads texts with the parsers of Python's client for Prometheus, and prints what they found.

python3 read.py FILE.om … FILE.txt …
"""

import sys

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as classic

HOSTILE = 'quote " and {brace="x"} 1 \\ \\n'

for name in sys.argv[1:]:
    with open(name, encoding="utf-8", newline="") as file:
        text = file.read()
    parser = openmetrics if name.endswith(".om") else classic
    families = list(parser.text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), f"{name}: a family is split"
    samples = [sample for family in families for sample in family.samples]
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(series) == len(set(series)), f"{name}: a series is there twice"
    labels = {value for sample in samples for value in sample.labels.values()}
    # They come back as they were.
    assert HOSTILE in labels and "# EOF" in labels, f"{name}: {labels}"
    assert any("line\nend" in value and "\0" in value for value in labels), f"{name}: {labels}"
    if "/long." in name:
        whole = [value for value in labels if len(value.encode()) > 64 << 10]
        assert len(whole) == 1 and whole[0].startswith('"{a="b"} \\n\0\u202e\n# EOF\n'), f"{name}: {len(whole)}"
    print(f"{name}: {len(families)} families, {len(samples)} samples")
