"""Rules with features that the shipped rules do not use.

They need not keep the function, because tests only look at where they apply and what they lead to.
"""

from __future__ import annotations

from taso_ext import RuleSet

ODD_RULES = RuleSet.parse(
    """
rule swap-operands
  var    x, y: float[...]
  source z = Mul(x, y)
  target z = Mul(y, x)

rule square-is-not-double
  var    x: float[...]
  source y = Mul(x, x)
  target y = Add(x, x)

rule two-outputs-of-one-input
  var    x: float[...]
  source y = Relu(x); z = Tanh(x)
  target y = Tanh(x); z = Relu(x)

rule twins-change-places
  var    x: any[...]
  source y = Relu(x); z = Relu(x)
  unordered y, z
  target t = Neg(x); y = Neg(t); z = Abs(t)

rule three-of-a-kind
  var    x: float[...]; a, b, c: weight float[...]
  source u = Add(x, a); v = Add(x, b); w = Add(x, c)
  unordered u, v, w
  target p = Mul(x, a); u = Mul(p, a); v = Mul(p, b); w = Mul(p, c)

rule chain-of-two-results
  var    x: float[...]
  source y = Neg(x); z = Relu(y)
  target y = Neg(x); z = Tanh(x)

rule beside-a-given-product
  var    x, b: float[...]
  source y = Relu(x)
  given  z = Mul(x, b)
  target y = Mul(x, b)

rule behind-a-given-chain
  var    x: float[...]
  source y = Tanh(x)
  given  t = Neg(x); z = Relu(t)
  target u = Neg(x); y = Neg(u)

rule reads-a-given-result-inside
  var    x, a: float[...]
  source t = Neg(x); y = Add(t, a)
  given  z = Relu(t)
  target y = Sub(a, x)

rule forgets-a-variable
  var    x, a: float[...s]
  source y = Sub(x, a)
  target y = Neg(x)

rule even-one-product
  var    x: float[..., m, k]; *w: weight float[k, *n]
  least  1
  source *y = MatMul(x, *w)
  target v = Concat(*w; axis=-1); t = MatMul(x, v); *y = Split(t; axis=-1, split=*n)

rule sums-with-weights
  var    x: float[..., n]; *w: weight float[n]
  source *y = Add(x, *w)
  where  len(dims(x)) != 1
  target *v = Mul(*w, *w); *y = Sub(x, *v)

rule weights-first
  var    x: float[...]; *w: weight float[...]
  source *y = Mul(*w, x)
  target *u = Mul(x, *w); *y = Neg(*u)

rule parts-in-another-order
  var    x: any[...]
  source u, v = Split(x; axis=d, split=s); y = Concat(v, u; axis=d)
  where  s[0] == s[-1]
  target y = Neg(x)

rule first-part-only
  var    x: float[...]
  source u, v = Split(x; axis=d, split=s); y = Relu(u)
  target t = Relu(x); y, v = Split(t; axis=d, split=s)

rule sum-at-the-head
  var    *b: any[...]; x: float[...]; a: weight float[...]
  source t = Add(x, a); y = Concat(t, *b; axis=d)
  target y = Concat(x, *b; axis=d)

rule sum-in-the-middle
  var    *a, *b: any[...]; x: float[...]
  source t = Neg(x); y = Concat(*a, t, *b; axis=d)
  target y = Concat(*b, x, *a; axis=d)

rule back-to-the-parts
  var    x, y: any[...]
  source t = Concat(x, y; axis=d); u, v = Split(t; axis=d, split=s)
  where  s[0] == dims(x)[d]
  target u = x; v = y

rule small-windows
  var    x: float[b, c, ...l]; w: weight float[n, c, ...k]
  source y = Conv(x, w; @r, strides=s)
  where  not (k == repeat(1, len(k))) and (s == repeat(1, len(s)) or sum(k) % 2 == 0) and prod(l) >= 1
  target t = Neg(x); y = Conv(t, w; @r, strides=s)

rule last-axes-swapped
  var    x: any[a, ...m, b, 2]
  source y = Transpose(x; perm=p)
  where  drop(p, len(p) - 2) == [len(p) - 1, len(p) - 2] and rank(x) > 2 and a <= b + len(m)
  target t = Reshape(x; shape=[a * prod(m), b, 2]); u = Reshape(t; shape=[a, ...m, b, 2])
         y = Transpose(u; perm=permute(p, inverse(inverse(sorted(p)))))

rule flat-and-back
  var    x: any[m, n]
  source y = Reshape(x; shape=[m * n])
  target t = Transpose(x; perm=[1, 0]); y = Reshape(t; shape=[-(-m) * n])

rule shared-run-time-factor
  var    x, z, w: float[...s]
  source u = Mul(x, w); v = Sub(z, w)
  target t = Sub(x, z); u = Mul(t, w); v = Sub(t, w)

rule shared-right-operand
  var    x, z: float[...]; w: float[...]
  source u = MatMul(x, w); v = MatMul(z, w)
  unordered u, v
  target a = MatMul(x, w); u = Neg(a); b = MatMul(z, w); v = Neg(b)

rule readers-of-one-value
  var    x: float[...]; a, b: float[...s]
  source t = Neg(x); u = Mul(t, a); v = Sub(t, b)
  target s = Sub(a, b); q = Neg(x); u = Mul(q, s); v = Sub(q, s)

rule times-one
  var    x: float[...]; c: weight float[...]
  source t = Mul(x, c); y = Relu(t)
  where  value(c) == 1 and rank(c) <= rank(x)
  target u = Neg(x); y = Relu(u)

rule half-of-what-is-not-one
  var    x: float[...]; c: weight float[...]
  source y = Add(x, c)
  where  value(c) < 1.0 and value(c) != 0.25 * sqrt(4)
  target h = ConstantOfShape(; shape=dims(c), value=value(c) / 2); y = Sub(x, h)

rule identity-written-down
  var    x: float[..., m, k]; a: weight float[k, k]
  source y = MatMul(x, a)
  where  is_identity(a) and not is_identity_kernel(a)
  target e = EyeLike(; size=k); t = MatMul(x, e); y = Neg(t)

rule leaks-less
  var    x: float[...]
  source y = LeakyRelu(x; alpha=a)
  where  a > 1e-3 and a <= 0.125
  target c = Constant(; shape=[1], values=[a - 0.1]); t = LeakyRelu(x; alpha=a / 2 - 1e-9); y = Add(t, c)

rule gelu-by-name
  var    x: float[...]
  source y = Gelu(x; approximate=a)
  where  a == "none" or a == "something else"
  target y = Gelu(x; approximate="tanh")

rule any-integers
  var    x: any[...]; y: any[...]
  source z = Add(x, y)
  target z = Sub(y, x)
"""
)
