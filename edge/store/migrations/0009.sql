-- Certificates of pods, with their keys, by the source of a projected volume that shows them.
CREATE TABLE certificates (
	uid    TEXT    NOT NULL, -- of the pod
	volume TEXT    NOT NULL,
	source INTEGER NOT NULL, -- which of the volume's sources
	state  BLOB    NOT NULL, -- what edge/podcertificate knows of it, sealed
	PRIMARY KEY (uid, volume, source)
) WITHOUT ROWID;
