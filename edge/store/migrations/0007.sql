-- The devices that containers have of the extended resources they ask for. There is no row
-- of a container that has none.
CREATE TABLE devices (
	uid       TEXT    NOT NULL, -- of the pod
	container TEXT    NOT NULL,
	resource  TEXT    NOT NULL,
	count     INTEGER NOT NULL, -- of devices
	given     BLOB    NOT NULL, -- the devices and what the container gets with them, JSON
	PRIMARY KEY (uid, container, resource)
) WITHOUT ROWID;

-- The ResourceClaims that drivers on this node prepared, or may have.
CREATE TABLE claims (
	uid       TEXT NOT NULL, -- of the claim
	driver    TEXT NOT NULL,
	namespace TEXT NOT NULL,
	name      TEXT NOT NULL,
	state     BLOB NOT NULL, -- the pods that use it and its devices, JSON
	PRIMARY KEY (uid, driver)
) WITHOUT ROWID;
