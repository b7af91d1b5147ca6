-- ConfigMaps, Secrets and claims that manifests of this node hold.
CREATE TABLE local (
	source    TEXT    NOT NULL, -- file, http, local
	kind      TEXT    NOT NULL, -- ConfigMap, Secret, PersistentVolumeClaim
	namespace TEXT    NOT NULL,
	name      TEXT    NOT NULL,
	origin    TEXT    NOT NULL, -- the file or URL
	gone      INTEGER NOT NULL, -- removed since, and kept for the pods that have it
	data      BLOB    NOT NULL, -- the object, protobuf, sealed
	PRIMARY KEY (source, kind, namespace, name)
) WITHOUT ROWID;
