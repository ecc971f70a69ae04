"""Plots of problems, one module per kind of task, which registers itself for its class of tasks."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
