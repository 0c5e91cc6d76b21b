"""Panels: pick with standard widgets, run in the background, read the answer in a picture and in words.

Each is a thin front of functions that a plain cell can call, and shows the line that does. Nothing is measured before
a button is pressed.
"""

from __future__ import annotations

from loaderscope.views.panels.diagnosis import diagnose_panel
from loaderscope.views.panels.gil import gil_panel
from loaderscope.views.panels.headroom import headroom_model
from loaderscope.views.panels.loop_model import LoopModel, model, plant
from loaderscope.views.panels.panel import Panel, Shown
from loaderscope.views.panels.planted import default_gil_choices
from loaderscope.views.panels.symptoms import symptom_chooser

__all__ = [
    "LoopModel",
    "Panel",
    "Shown",
    "default_gil_choices",
    "diagnose_panel",
    "gil_panel",
    "headroom_model",
    "model",
    "plant",
    "symptom_chooser",
]
