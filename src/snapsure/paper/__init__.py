"""The paper: its data sets, networks, recipes, tables and figures; and the demo."""
