-- Pods that ended and came back under their UID, such as a manifest that was removed and
-- put back.
CREATE TABLE lives (
	uid   TEXT    PRIMARY KEY,
	lives INTEGER NOT NULL -- how often it ended
) WITHOUT ROWID;
