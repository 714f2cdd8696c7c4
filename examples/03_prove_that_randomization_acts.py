"""The most common defect in the field: a parameter that is randomized and does nothing. An audit finds it.

Friction is the classic case: an engine takes the larger friction of two surfaces, so lowering the smaller one changes nothing.
"""

import surefoot as sf

XML = """
<mujoco><option timestep=".004"/><worldbody><geom name="floor" type="plane" size="5 5 .1" friction="1"/>
<body name="box" pos="0 0 .1"><joint name="free" type="free"/>
<geom name="box" type="box" size=".1 .1 .1" friction=".5"/></body></worldbody></mujoco>"""

robot = sf.Robot.text(XML, "box")
masked = sf.Param("box friction", "friction", 0.5, 0.1, 0.9, match="box", op="set")
both = sf.Param("both frictions", "friction", 0.5, 0.1, 0.9, match="box|floor", op="set")
for param in (masked, both):
    (found,) = sf.audit(robot, sf.Params((param,)))
    print(f"{param.name:15} largest change {found.change:.3g}: {'acts' if found.acts else 'DOES NOTHING'}")
    assert found.acts == (param is both)
