-- What this node is to run, in the order it learned of it.
CREATE TABLE pods (
	uid       TEXT    PRIMARY KEY,
	seq       INTEGER NOT NULL,
	source    TEXT    NOT NULL,
	origin    TEXT    NOT NULL,
	manifest  BLOB    NOT NULL, -- v1.Pod, protobuf
	deleting  INTEGER NOT NULL, -- is to end, and goes once nothing of it is left
	grace     INTEGER NOT NULL, -- nanoseconds, of the deletion
	again     INTEGER NOT NULL  -- wanted anew under the same UID, once it has ended
) WITHOUT ROWID;

-- Addresses given to sandboxes.
CREATE TABLE leases (
	addr  BLOB PRIMARY KEY, -- 4 or 16 bytes
	owner TEXT NOT NULL
) WITHOUT ROWID;

-- Pods that may not run here, by UID: an answer that must not change by a restart.
CREATE TABLE admissions (
	uid     TEXT PRIMARY KEY,
	reason  TEXT NOT NULL,
	message TEXT NOT NULL
) WITHOUT ROWID;

-- Image archives whose content has been imported.
CREATE TABLE imports (
	digest TEXT PRIMARY KEY,
	name   TEXT NOT NULL
) WITHOUT ROWID;

-- The last known status of each pod, for when its containers are gone.
CREATE TABLE statuses (
	uid    TEXT PRIMARY KEY,
	status BLOB NOT NULL -- v1.PodStatus, protobuf
) WITHOUT ROWID;

CREATE TABLE meta (
	key   TEXT PRIMARY KEY,
	value TEXT NOT NULL
) WITHOUT ROWID;
