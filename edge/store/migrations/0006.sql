-- What is mounted of volumes, or was about to be: a row is there before anything of it is
-- mounted and until nothing is.
CREATE TABLE volumes (
	volume TEXT NOT NULL, -- its ID, of whichever pod
	pod    TEXT NOT NULL, -- UID; '': for the whole node
	path   TEXT NOT NULL, -- where
	data   BLOB NOT NULL, -- what the driver needs to undo it
	PRIMARY KEY (volume, pod, path)
) WITHOUT ROWID;
