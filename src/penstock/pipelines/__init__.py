"""Running pipelines: programs that use penstock.spark, supervised, and known by name.

Free of pyspark: the supervisor is a small process beside the one that holds Spark.

    terms        what a run tells its pipeline: two addresses, a range, where checkpoints go
    reports      what a pipeline tells its supervisor
    judging      what a supervisor does when a pipeline has ended
    supervisor   starts it, listens, starts it again
    folder       what is kept of a pipeline on disk
    savepoints   copies of a stopped pipeline's checkpoints, and the way back to one
"""
