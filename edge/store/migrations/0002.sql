-- What the API server said of the objects that pods of this node use.
CREATE TABLE objects (
	kind      TEXT    NOT NULL, -- ConfigMap, Secret, Service
	namespace TEXT    NOT NULL,
	name      TEXT    NOT NULL, -- '': all of the namespace
	version   TEXT    NOT NULL, -- resourceVersion to go on watching from
	gone      INTEGER NOT NULL, -- deleted since, and kept for the pods that have it
	data      BLOB    NOT NULL, -- the list of the kind, protobuf, sealed; an empty list: there is none
	PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;

-- Service account tokens, under what the pod asked for.
CREATE TABLE tokens (
	uid      TEXT    NOT NULL, -- of the pod
	audience TEXT    NOT NULL, -- '': the server's default
	seconds  INTEGER NOT NULL, -- expirationSeconds
	issued   INTEGER NOT NULL, -- seconds since 1970, by the server's clock
	expires  INTEGER NOT NULL,
	token    BLOB    NOT NULL, -- sealed
	PRIMARY KEY (uid, audience, seconds)
) WITHOUT ROWID;
