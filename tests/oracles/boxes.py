"""Areas of boxes by polygon clipping."""

from __future__ import annotations

import numpy as np


def clip(subject: list, corners: list) -> list:
    """Sutherland-Hodgman: the part of a polygon inside a convex one with corners in counter-clockwise order."""
    for a, b in zip(corners, corners[1:] + corners[:1], strict=True):
        inside = [(b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) for p in subject]
        out = []
        for k, p in enumerate(subject):
            q, dp, dq = subject[k - 1], inside[k], inside[k - 1]
            if (dp < 0) != (dq < 0):
                share = dq / (dq - dp)
                out.append((q[0] + share * (p[0] - q[0]), q[1] + share * (p[1] - q[1])))
            if dp >= 0:
                out.append(p)
        subject = out
        if not subject:
            break
    return subject


def corners_of(x: float, y: float, heading: float, half_length: float, half_width: float) -> list:
    c, s = np.cos(heading), np.sin(heading)
    box = [
        (-half_length, -half_width),
        (half_length, -half_width),
        (half_length, half_width),
        (-half_length, half_width),
    ]
    return [(x + c * u - s * v, y + s * u + c * v) for u, v in box]


def common_area(a: list, b: list) -> float:
    p = np.array(clip(a, b) or [(0.0, 0.0)])
    x, y = p.T
    return 0.5 * abs(float(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))))
