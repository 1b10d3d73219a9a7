"""Writes every expression of a Grafana dashboard as a rule, for promtool to read.

python3 expressions.py DASHBOARD.json >RULES.yml
"""

import json
import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    dashboard = json.load(file)
ids = [panel["id"] for panel in dashboard["panels"]]
assert len(ids) == len(set(ids)), "an id is there twice"
variables = {variable["name"] for variable in dashboard["templating"]["list"]}
print("groups:\n  - name: dashboard\n    rules:")
count = 0
for panel in dashboard["panels"]:
    for target in panel.get("targets", []):
        expression = target["expr"]
        used = set(re.findall(r"\$\{?(\w+)", expression)) - {"__rate_interval"}
        assert used <= variables, f"{panel['title']}: {used - variables}"
        expression = expression.replace("$__rate_interval", "1m")
        expression = re.sub(r"\$\{?\w+\}?", ".*", expression)
        print(f"      - record: dashboard:expression:{count}\n        expr: {json.dumps(expression)}")
        count += 1
assert count > 40, count
