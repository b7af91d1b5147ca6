-- Events of pods and of the node that the API server does not know, and warnings.
CREATE TABLE events (
	name  TEXT    PRIMARY KEY, -- of the Event
	seq   INTEGER NOT NULL,    -- order in which they happened last
	told  INTEGER NOT NULL,    -- the count that the API server knows; 0: nothing of it
	event BLOB    NOT NULL     -- v1.Event, protobuf
) WITHOUT ROWID;
