"""Public: inputs, outputs, questions and explanations as `Keep` returns them."""

from keep_actors.api.attention import Attention
from keep_actors.api.proposal_views import PermissionAsked, ProposedScript
from keep_actors.api.views import ApprovalQuestion, BlastRadius, Explanation, Input, Output, Proposed

__all__ = [
    "ApprovalQuestion",
    "Attention",
    "BlastRadius",
    "Explanation",
    "Input",
    "Output",
    "PermissionAsked",
    "Proposed",
    "ProposedScript",
]
