"""surefoot takes a robot model to a policy that keeps its footing in the real world. The law is x' = f(x, u, e)."""

__version__ = "0.1.0"
