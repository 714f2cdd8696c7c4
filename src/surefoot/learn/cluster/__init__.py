"""Many machines: workers hold shards of a run's envs, and the learner gets from them the bits that it would get here.

    address.py  --on local:2, ray://host:port      shards.py  which envs a worker holds, and how rollouts become one
    worker.py   a shard's envs, in its process     ray_workers.py  workers as Ray actors, replaced when they die
    start.py    from a spec to Shards              jobs.py  independent jobs on the same workers
    peers.py    an update shared by processes      cost.py  what an iteration takes with w workers

Nothing here is imported unless someone names workers, and only ray_workers.py and peers.py use Ray.
"""
