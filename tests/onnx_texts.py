"""ONNX graphs as text, for tests: a model of a text, its features, and graphs that several tests read."""

import onnx.parser

from planner.predict.graph import features

HEAD = '<ir_version: 9, opset_import: ["" : 20, "custom" : 1]> '


def model(text, head=HEAD):
    return onnx.parser.parse_model(head + text)


def read(text, **options):
    return features(model(text), where="m.onnx", **options)


SMALL = """g (float[N, 3] x) => (float[N, 2] y) <float[3, 4] w = {0,0,0,0,0,0,0,0,0,0,0,0}, float[4] b = {0,0,0,0},
    float[4, 2] v = {0,0,0,0,0,0,0,0}, float two = {2}> {
    h = MatMul (x, w)
    s = Add (h, b)
    a = Relu (s)
    d = Div (a, two)
    y = MatMul (d, v)
}"""

FIXED = """g (float[4, 3, 2] x) => (float[4, 6] y) <int64[2] s = {4, 6}, float[6] w = {1, 1, 1, 1, 1, 1}> {
    a = Reshape (x, s)
    y = Mul (a, w)
}"""
