"""A ROS 2 node that asks `trident serve` for one agent's actions. UNTESTED: rclpy is not on the package index, so that
no test of this repository runs it. It owns no logic: observation in, action out, and the fail-safe if there is none.

    ros2 run ... --ros-args -p agent:=2 -p port:=7700
"""

import json
import socket

import rclpy
from rclpy.node import Node
from std_msgs.msg import Float32MultiArray, String

PATIENCE = 0.05
"""Seconds for an answer."""


class Policy(Node):
    def __init__(self):
        super().__init__("trident_policy")
        self.agent = self.declare_parameter("agent", 0).value
        self.port = self.declare_parameter("port", 7700).value
        self.sequence, self.lines = 0, None
        self.actions = self.create_publisher(String, "action", 1)
        self.create_subscription(Float32MultiArray, "observation", self.observed, 1)

    def connect(self):
        server = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        self.lines = server.makefile("rwb")

    def observed(self, message):
        self.sequence += 1
        request = {"id": self.sequence, "agent": self.agent, "seq": self.sequence, "obs": list(message.data)}
        try:
            if self.lines is None:
                self.connect()
            self.lines.write(json.dumps(request).encode() + b"\n")
            self.lines.flush()
            answer = json.loads(self.lines.readline())
            if "mode" not in answer:
                raise ValueError(answer.get("error", "no action"))
        except (OSError, ValueError) as error:
            self.lines = None
            self.get_logger().warning(f"no answer, fail-safe: {error}")
            answer = {"mode": None, "params": None, "branch": "fail-safe", "why": str(error)}
        self.actions.publish(String(data=json.dumps(answer)))


def main():
    rclpy.init()
    node = Policy()
    try:
        rclpy.spin(node)
    finally:
        node.destroy_node()
        rclpy.shutdown()


if __name__ == "__main__":
    main()
