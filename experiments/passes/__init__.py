"""Few passes: what students, losses and small budgets of snapshots are worth."""
