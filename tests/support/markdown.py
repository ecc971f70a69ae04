"""Code of Markdown texts: pages and docstrings."""

import re
import textwrap


def code_blocks(text: str) -> list[str]:
    """Python blocks of a text, without their indentation."""
    return [textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
