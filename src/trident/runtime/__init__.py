"""Policies outside the laboratory: a bundle, a guard around it, an audit log, a server. NumPy is all this needs.

from trident.runtime import Guard

guard = Guard("bundle")
actions, reasons = guard.decide(observations, stamps)
"""

from trident.runtime.audit import Audit as Audit
from trident.runtime.bundle import Bundle as Bundle
from trident.runtime.bundle import open_bundle as open_bundle
from trident.runtime.guard import Action as Action
from trident.runtime.guard import Decision as Decision
from trident.runtime.guard import Guard as Guard
from trident.runtime.guard import Reason as Reason
from trident.runtime.replay import replay as replay
