"""The steps that make the schema of the cluster's database.

Step 4 is the schema of Procrastinate, as the installed version has it. So a database that is made with a newer version
has that version's schema from step 4 on, and an older database needs a step of its own to get there. A newer minor
version of Procrastinate is taken like this:

1. Widen the version in pyproject.toml.
2. Put the files `sql/migrations/*.sql` of Procrastinate that are newer than step 4's version into one further step.
   Let that do nothing where it is done: `DO $$ BEGIN IF to_regproc('…') IS NULL THEN … END IF; END $$`, with a
   function, table or column that only the newer schema has.
3. Look at each function of Procrastinate that `005_queue.sql` calls. If its name or arguments have changed, the same
   step replaces our functions; step 5 must run on both schemas, as it runs after step 4 on new databases.
4. Write the new hash into `tests/cluster/test_cluster_database.py`, and let that file compare a database that was
   migrated from the older schema with a new one.
"""
