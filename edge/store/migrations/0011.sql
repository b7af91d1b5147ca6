-- Of the pods in admissions those that the node ended while they ran.
CREATE TABLE evictions (
	uid       TEXT    PRIMARY KEY,
	grace     INTEGER NOT NULL, -- nanoseconds that their containers get to end, at most; 0: as the spec says
	disrupted INTEGER NOT NULL  -- for the sake of others
) WITHOUT ROWID;
