"""Faithfulness of a learned belief: its measures, the study that takes them, and the rule of decision."""
