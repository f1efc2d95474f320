"""Forward and inverse kinematics of a PiPER-class arm from its published DH table.

Lengths in metres, angles in radians. An end pose is x, y, z and three Euler angles rx, ry, rz with
R = Rz(rz) Ry(ry) Rx(rx): turns about the fixed axes x, then y, then z, the vendor's convention.
The vendor reports the pose of the flange, the end of link 6; the tool centre lies `TOOL` beyond it.

Legend: ... any leading shape, 6 joints.
"""

import numpy as np
import numpy.typing as npt

from djepa.worlds.protocol import Floats

JOINTS = 6
# One row per joint, modified DH: length a and twist alpha to the previous joint, offset d along the
# joint, and the joint's angle at the arm's reading 0.
A = np.array([0.0, 0.0, 0.28503, -0.02198, 0.0, 0.0])
ALPHA = np.array([0.0, -np.pi / 2, 0.0, np.pi / 2, -np.pi / 2, np.pi / 2])
D = np.array([0.123, 0.0, 0.0, 0.25075, 0.0, 0.091])
ZERO = np.deg2rad([0.0, -174.22, -100.78, 0.0, 0.0, 0.0])
ZERO_OFFSET = np.deg2rad(
    [0.0, -172.22, -102.78, 0.0, 0.0, 0.0]
)  # firmware whose readings of joints 2, 3 are off by 2°
LOW = np.deg2rad([-150.0, 0.0, -170.0, -100.0, -70.0, -120.0])
HIGH = np.deg2rad([150.0, 180.0, 0.0, 100.0, 70.0, 120.0])
TOOL = 0.1358  # m from the flange to the middle between the finger tips
OPENING = 0.07  # m between the fingers at most


def mounting(i: int) -> tuple[Floats, Floats]:
    """Position (3,) and quaternion (4,) of link i + 1 on the previous link, at joint angle 0."""
    half, turn = ALPHA[i] / 2, ZERO[i] / 2
    cx, sx, cz, sz = np.cos(half), np.sin(half), np.cos(turn), np.sin(turn)
    place = np.array([A[i], -np.sin(ALPHA[i]) * D[i], np.cos(ALPHA[i]) * D[i]])
    return place, np.array([cx * cz, sx * cz, -sx * sz, cx * sz])


def link_frames(joints: npt.ArrayLike, zero: Floats = ZERO) -> Floats:
    """(..., 6) joint angles -> (..., 6, 4, 4): the frame of each link in the frame of the base."""
    theta = np.asarray(joints, np.float64) + zero
    frame = np.broadcast_to(np.eye(4), (*theta.shape[:-1], 4, 4))
    frames = []
    for i in range(JOINTS):
        frame = frame @ _link(i, theta[..., i])
        frames.append(frame)
    return np.stack(frames, axis=-3)


def forward(joints: npt.ArrayLike, tool: float = 0.0, zero: Floats = ZERO) -> Floats:
    """(..., 6) joint angles -> (..., 4, 4): the flange, or the point `tool` m beyond it."""
    frame = link_frames(joints, zero)[..., -1, :, :].copy()
    frame[..., :3, 3] += tool * frame[..., :3, 2]
    return frame


def end_pose(joints: npt.ArrayLike, tool: float = 0.0, zero: Floats = ZERO) -> Floats:
    """(..., 6) joint angles -> (..., 6): x, y, z, rx, ry, rz."""
    frame = forward(joints, tool, zero)
    return np.concatenate([frame[..., :3, 3], to_euler(frame[..., :3, :3])], axis=-1)


def jacobian(joints: npt.ArrayLike, tool: float = 0.0) -> Floats:
    """(..., 6) -> (..., 6, 6): velocity of the end point (rows 0-2) and its turn (rows 3-5)."""
    return _end_and_jacobian(link_frames(joints), tool)[1]


def _end_and_jacobian(frames: Floats, tool: float) -> tuple[Floats, Floats]:
    """(..., 6, 4, 4) frames of the links -> end frame (..., 4, 4), Jacobian (..., 6, 6)."""
    axis, origin = frames[..., :3, 2], frames[..., :3, 3]
    end = frames[..., -1, :, :].copy()
    end[..., :3, 3] += tool * axis[..., -1, :]
    way = end[..., None, :3, 3] - origin
    return end, np.swapaxes(np.concatenate([np.cross(axis, way), axis], axis=-1), -1, -2)


def inverse(
    target: npt.ArrayLike,
    seed: npt.ArrayLike,
    tool: float = 0.0,
    steps: int = 12,
    damping: float = 1e-3,
) -> tuple[Floats, Floats]:
    """Joint angles (..., 6) whose end frame is `target` (..., 4, 4), searched from `seed` (..., 6).

    Damped least squares inside the joint limits, a fixed number of steps, so the same input gives
    the same bits. Also returns the remaining error (..., 2): metres and radians.
    """
    wanted = np.asarray(target, np.float64)
    joints = np.clip(np.broadcast_to(seed, (*wanted.shape[:-2], JOINTS)), LOW, HIGH)
    for _ in range(steps):
        end, J = _end_and_jacobian(link_frames(joints), tool)
        error = pose_error(wanted, end)
        square = J @ np.swapaxes(J, -1, -2) + damping * np.eye(6)
        move = np.swapaxes(J, -1, -2) @ np.linalg.solve(square, error[..., None])
        joints = np.clip(joints + np.clip(move[..., 0], -0.3, 0.3), LOW, HIGH)
    left = pose_error(wanted, forward(joints, tool))
    return joints, np.stack(
        [np.linalg.norm(left[..., :3], axis=-1), np.linalg.norm(left[..., 3:], axis=-1)], axis=-1
    )


def pose_error(wanted: Floats, frame: Floats) -> Floats:
    """(..., 4, 4) frames -> (..., 6): translation and rotation vector from `frame` to `wanted`."""
    turn = wanted[..., :3, :3] @ np.swapaxes(frame[..., :3, :3], -1, -2)
    half = np.stack(
        [
            turn[..., 2, 1] - turn[..., 1, 2],
            turn[..., 0, 2] - turn[..., 2, 0],
            turn[..., 1, 0] - turn[..., 0, 1],
        ],
        axis=-1,
    )
    sine = np.linalg.norm(half, axis=-1) / 2
    cosine = (np.trace(turn, axis1=-2, axis2=-1) - 1) / 2
    angle = np.arctan2(sine, cosine)
    scale = np.where(sine > 1e-9, angle / np.maximum(2 * sine, 1e-12), 0.5)
    return np.concatenate(
        [wanted[..., :3, 3] - frame[..., :3, 3], half * scale[..., None]], axis=-1
    )


def to_euler(turn: npt.ArrayLike) -> Floats:
    """(..., 3, 3) -> (..., 3) rx, ry, rz; where ry is ±90° only rx ∓ rz is defined, and rz is 0."""
    R = np.asarray(turn, np.float64)
    ry = np.arctan2(-R[..., 2, 0], np.hypot(R[..., 0, 0], R[..., 1, 0]))
    flat = np.abs(R[..., 2, 0]) > 1 - 1e-9
    rx = np.where(
        flat,
        np.sign(-R[..., 2, 0]) * np.arctan2(R[..., 0, 1], R[..., 1, 1]),
        np.arctan2(R[..., 2, 1], R[..., 2, 2]),
    )
    rz = np.where(flat, 0.0, np.arctan2(R[..., 1, 0], R[..., 0, 0]))
    return np.stack([rx, ry, rz], axis=-1)


def from_euler(angles: npt.ArrayLike) -> Floats:
    """(..., 3) rx, ry, rz -> (..., 3, 3) = Rz(rz) Ry(ry) Rx(rx)."""
    angles = np.asarray(angles, np.float64)
    (cx, cy, cz), (sx, sy, sz) = (
        np.moveaxis(np.cos(angles), -1, 0),
        np.moveaxis(np.sin(angles), -1, 0),
    )
    rows = [
        [cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx],
        [sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx],
        [-sy, cy * sx, cy * cx],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def to_frame(pose: npt.ArrayLike) -> Floats:
    """(..., 6) x, y, z, rx, ry, rz -> (..., 4, 4)."""
    pose = np.asarray(pose, np.float64)
    frame = np.zeros((*pose.shape[:-1], 4, 4))
    frame[..., :3, :3] = from_euler(pose[..., 3:])
    frame[..., :3, 3] = pose[..., :3]
    frame[..., 3, 3] = 1.0
    return frame


def _link(i: int, theta: Floats) -> Floats:
    """(...) angles of joint i -> (..., 4, 4) = Rx(alpha) Tx(a) Rz(theta) Tz(d)."""
    c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(ALPHA[i]), np.sin(ALPHA[i])
    frame = np.zeros((*theta.shape, 4, 4))
    frame[..., 0, 0], frame[..., 0, 1], frame[..., 0, 3] = c, -s, A[i]
    frame[..., 1, 0], frame[..., 1, 1] = s * ca, c * ca
    frame[..., 1, 2], frame[..., 1, 3] = -sa, -sa * D[i]
    frame[..., 2, 0], frame[..., 2, 1] = s * sa, c * sa
    frame[..., 2, 2], frame[..., 2, 3] = ca, ca * D[i]
    frame[..., 3, 3] = 1.0
    return frame
