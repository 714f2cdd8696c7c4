"""State estimation: what a robot reads -> what it cannot read, each with its covariance. numpy only.

estimator.inputs        observation terms that it reads
s = init(n)             s = step(s, frame)          frame (n, width): those terms, one control period
terms(s)                name -> Estimate(value (n, d), cov (n, d, d))

abstract.py     the contract of every estimator
invariant.py    the filter: IMU, feet on the ground, position and attitude fixes, air drag
single.py       the filter's step for one robot, equal to that for n rows and three times as fast
tells.py        what the filter tells of its state
lie.py          rotations and SE_m(3), n rows at once
legs.py         where feet are, as a table that is linear in products of cos and sin
learned.py      what a net in a policy's file estimates
kinds.py        estimators out of JSON
"""
