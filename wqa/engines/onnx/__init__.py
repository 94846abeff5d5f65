"""ONNX: translation of networks, and an engine that runs the graphs by ONNX Runtime."""
