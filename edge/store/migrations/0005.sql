-- The CPU and memory that a pod was given after it was resized in place. A pod that was
-- never resized has no row: it has what its sandbox was made with.
CREATE TABLE allocations (
	uid        TEXT    PRIMARY KEY,
	generation INTEGER NOT NULL, -- of the pod that asked for it
	resources  BLOB    NOT NULL  -- v1.PodSpec with nothing but names and resources, protobuf
) WITHOUT ROWID;
