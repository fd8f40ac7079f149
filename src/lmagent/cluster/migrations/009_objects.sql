-- The objects in the object storage. The row is there before the object is written, and goes with it: `wanted` is renewed
-- by each writer, so that an object on its way to its first blob is not deleted.
CREATE TABLE object (
    key text PRIMARY KEY,
    wanted timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE blob ADD FOREIGN KEY (object) REFERENCES object;
