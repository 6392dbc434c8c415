"""What a run begins with: its model, rules, costs and environment, also at other sizes, and what logs lead to."""
